import json
from pathlib import Path

import pytest

from gateway.adapters.authentication import HashParameters, hash_secret, users_line
from gateway.adapters.tokens import key_id
from gateway.settings import SETTINGS
from gateway.settings.admin_tokens import new_token, tokens_line
from tests.unit.cli.conftest import Run

KEY, OTHER_KEY = "k" * 32, "o" * 32


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text(users_line("alice", hash_secret("wonderland", HashParameters(2, 1, 1))) + "\n", "utf-8")
    path.chmod(0o600)
    return path


def test_config_tells_every_setting(run: Run) -> None:
    out = run("config").out

    for name in SETTINGS:
        assert f"\n{name} " in out


def test_config_prints_a_form_for_programs(run: Run) -> None:
    described = {each["name"]: each for each in json.loads(run("config", "--json").out)}
    assert described.keys() == SETTINGS.keys()
    assert described["lease"] == {
        "name": "lease",
        "group": "Grid",
        "default": "6 s",
        "default_text": "6 s",
        "unit": "seconds",
        "values": "seconds between 1 and 300",
        "meaning": described["lease"]["meaning"],
        "reason": described["lease"]["reason"],
        "flag": "--lease",
        "variable": "GATEWAY_LEASE",
        "secret": False,
    }


def test_check_config_tells_what_was_given_and_where(run: Run, users: Path) -> None:
    result = run(
        *("check-config", "--node", "n1"),
        environment={
            "GATEWAY_TOKEN_KEYS": f"{OTHER_KEY},{KEY}",
            "GATEWAY_AUTH": f"static:{users}",
            "GATEWAY_GRID": "rediss://:hunter2@h/0",
            "COLUMNS": "200",
        },
    )

    assert (result.code, result.err) == (0, "")
    rows = {line.split()[0]: line.split()[1:] for line in result.out.splitlines()}
    assert rows["node"] == ["n1", "--node"]
    assert rows["token_keys"] == ["…,…", "GATEWAY_TOKEN_KEYS"]
    assert rows["grid"] == ["rediss://:…@h/0", "GATEWAY_GRID"]
    assert f"{key_id(OTHER_KEY.encode())} verifies, {key_id(KEY.encode())} signs and verifies" in result.out
    assert "users: 1" in result.out
    assert result.out.endswith("The configuration is fit to run.\n")
    assert KEY not in result.out


def test_check_config_warns_of_shortcuts(run: Run) -> None:
    result = run("check-config", "--dev")

    assert result.code == 0
    assert [line.split(":")[:2] for line in result.err.splitlines()] == [["gateway", " warning"]] * 4
    assert "token keys:" not in result.out


def test_check_config_warns_of_secrets_that_everybody_can_read(run: Run, users: Path) -> None:
    users.chmod(0o644)

    result = run("check-config", "--dev", "--auth", f"static:{users}", "--grid", "redis://h/0")

    assert f"{users} holds secrets and can be read by every user of this machine" in result.err


def test_check_config_reads_the_files_that_are_named(run: Run, users: Path) -> None:
    users.write_text("alice\n", "utf-8")

    result = run("check-config", "--dev", "--auth", f"static:{users}")

    assert result.code == 2
    assert result.err == (
        f"gateway: error: --auth: {users}:1: there is no colon between principal and hash; "
        "make the line with `gateway hash-secret PRINCIPAL`\n"
    )


def test_check_config_tells_how_clients_authenticate(run: Run, users: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s" * 40, "utf-8")
    (tmp_path / "jwt.toml").write_text(
        'issuer = "https://id.example.com"\naudience = ["a"]\nalgorithms = ["HS256"]\nsecret_file = "secret"\n', "utf-8"
    )
    (tmp_path / "http.toml").write_text('url = "https://auth.internal/who?key=hunter2"\n', "utf-8")
    ways = f"static:{users},jwt:{tmp_path}/jwt.toml,http:{tmp_path}/http.toml"

    result = run("check-config", "--dev", "--auth", ways)

    assert result.code == 0
    for line in (
        "users: 1",
        "tokens of https://id.example.com, signed by HS256",
        "callback: https://auth.internal/who",
    ):
        assert f"\n{line}\n" in result.out
    assert "hunter2" not in result.out
    assert f"{tmp_path}/secret holds secrets and can be read" in result.err


NO_KEY = 'issuer = "i"\naudience = ["a"]\nalgorithms = ["RS256"]\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "jwt.toml: the file cannot be read"),
        ("", "jwt.toml: issuer: there is no issuer"),
        (
            f'{NO_KEY}key_file = "absent"\n',
            "absent: the file cannot be read (No such file or directory); name a file that this user may read",
        ),
        (f'{NO_KEY}jwks_url = "https://h/k"\nca_file = "absent"\n', "jwt.toml: ca_file: "),
    ],
)
def test_check_config_reads_what_authenticators_need(
    run: Run, tmp_path: Path, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "jwt.toml").write_text(content, "utf-8")

    result = run("check-config", "--dev", "--auth", f"jwt:{tmp_path}/jwt.toml")

    assert result.code == 2
    assert message in result.err


def test_check_config_tells_all_mistakes(run: Run) -> None:
    result = run("check-config", "--lease", "x", "--rate-burst", "0")

    assert result.code == 2
    assert len(result.err.splitlines()) == 2


def test_check_config_reads_the_file_of_administrators(run: Run, users: Path, tmp_path: Path) -> None:
    file = tmp_path / "admins"
    given = ("check-config", "--dev", "--auth", f"static:{users}", "--admin-tokens-file", str(file))
    file.write_text(tokens_line("ops", frozenset({"viewer"}), new_token()))
    assert "administrators: 1\n" in run(*given).out

    file.write_text("nonsense")
    result = run(*given)

    assert result.code == 2
    assert result.err == (
        f"gateway: error: --admin-tokens-file: {file}, line 1: is not of the form name:roles:sha256$…; "
        "make lines with `gateway admin token create`\n"
    )


def test_check_config_warns_of_roles_of_administrators_that_nobody_defines(
    run: Run, users: Path, tmp_path: Path
) -> None:
    admins, policy = tmp_path / "admins", tmp_path / "policy.toml"
    lines = [
        tokens_line(name, frozenset({role}), new_token()) for name, role in {"ann": "oprator", "bob": "desk"}.items()
    ]
    admins.write_text("\n".join(lines))
    policy.write_text('[roles.desk]\nadmin = ["nodes:read"]\n')
    given = ("check-config", "--dev", "--auth", f"static:{users}", "--admin-tokens-file", str(admins))

    without, with_policy = run(*given), run(*given, "--policy", str(policy))

    assert (without.code, with_policy.code) == (0, 0)
    assert "the role 'desk' of bob is neither built in nor in the policy" in without.err
    assert "the role 'oprator' of ann is neither built in nor in the policy; it allows nothing" in with_policy.err
    assert "desk" not in with_policy.err
