"""``gateway keys``: a rollover on the command line, and never a key on the screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.adapters.tokens.key_files import KeyText
from tests.unit.cli.conftest import Run


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "gateway.toml"
    file.write_text('token_keys_file = "keys"\ntoken_verify_keys_file = "verify"\ntoken_life = 86400\n', "ascii")
    return str(file)


def test_a_rollover_on_the_command_line(run: Run, config: str, tmp_path: Path) -> None:
    at = ("--config", config)
    first = run("keys", "create", *at)
    second = run("keys", "create", *at)
    assert (first.code, second.code) == (0, 0)
    first_id, second_id = first.out.strip(), second.out.strip()
    assert "the first key" in first.err
    assert f"gateway keys promote {second_id}" in second.err
    said = [first, second, run("keys", "promote", second_id, *at), run("keys", "list", *at)]
    assert "a node signs with it once it has these files" in said[-2].err, "no node has them yet"
    lines = said[-1].out.splitlines()
    assert lines[0].split() == ["KEY", "USE", "CREATED", "SIGNS", "SINCE", "UNTIL", "CAN", "BE", "RETIRED"]
    assert lines[1].startswith(f"{first_id}  verifies ")
    assert lines[2].startswith(f"{second_id}  signs and verifies")
    assert lines[2].endswith("no")

    early = run("keys", "retire", first_id, *at)
    assert (early.code, early.out) == (1, "")
    assert "valid tokens" in early.err
    said += [early, run("keys", "retire", first_id, "--force", *at), run("keys", "list", "--json", *at)]
    assert [each.code for each in said] == [0, 0, 0, 0, 1, 0, 0]
    assert "a node accepts its tokens until it has them" in said[-2].err
    (left,) = json.loads(said[-1].out)
    assert (left["id"], left["use"], left["retirable_now"]) == (second_id, "signs", False)
    keys = [each.key.reveal() for each in KeyText((tmp_path / "keys").read_text()).entries]
    assert len(keys) == 1
    assert not any(key in each.out + each.err for key in keys for each in said)


def test_nodes_take_the_files_of_the_commands(run: Run, config: str) -> None:
    run("keys", "create", "--config", config)
    next_id = run("keys", "create", "--config", config).out.strip()
    result = run("check-config", "--dev", "--config", config)
    assert result.code == 0
    assert f"{next_id} verifies" in result.out


def test_the_json_list_is_for_programs(run: Run, config: str) -> None:
    first = run("keys", "create", "--config", config).out.strip()
    second = run("keys", "create", "--config", config).out.strip()
    listed = json.loads(run("keys", "list", "--json", "--config", config).out)
    assert [(each["id"], each["use"], each["retirable_now"]) for each in listed] == [
        (first, "signs", False),
        (second, "next", True),
    ]
    assert all(each["created"].endswith("Z") and each["demoted"] is None for each in listed)


def test_files_that_others_can_read_are_warned_of(run: Run, config: str, tmp_path: Path) -> None:
    run("keys", "create", "--config", config)
    (tmp_path / "keys").chmod(0o644)
    result = run("keys", "list", "--config", config)
    assert result.code == 0
    assert "gateway: warning:" in result.err
    assert "chmod o-r" in result.err


def test_flags_name_the_files_as_well(run: Run, tmp_path: Path) -> None:
    at = ("--token-keys-file", str(tmp_path / "a"), "--token-verify-keys-file", str(tmp_path / "b"))
    assert run("keys", "create", *at).code == 0
    assert (tmp_path / "a").exists()


def test_without_files_there_is_nothing_to_do(run: Run) -> None:
    for arguments in (("create",), ("list",), ("promote", "x"), ("retire", "x")):
        result = run("keys", *arguments, environment={"GATEWAY_TOKEN_KEYS": "k" * 32})
        assert result.code == 2
        assert "no file of token keys is named" in result.err


def test_a_bad_file_is_told_by_its_line(run: Run, config: str, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("short\n")
    result = run("keys", "list", "--config", config)
    assert result.code == 2
    assert f"{tmp_path / 'keys'}:1" in result.err
    assert "short\n" not in result.err
