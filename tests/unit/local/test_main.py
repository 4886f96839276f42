"""What `make up`, `make down` and `make demo` say when something is in the way."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from gateway.local import __main__ as program
from gateway.local.identity import ProcessIdentity
from gateway.local.ports import PortPlan
from gateway.local.run_folder import StackState


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["gateway.local", *arguments])
    return program.main()


def test_down_without_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "down") == 0
    assert capsys.readouterr().out == "Nothing of ours runs.\n"


def test_down_with_a_state_of_another_boot(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = here / ".local" / "up-18000"
    folder.mkdir(parents=True)
    StackState(18_000, {"redis": ProcessIdentity(1, "another boot:1")}).write(folder)

    assert call(monkeypatch, "down") == 0
    assert capsys.readouterr().out == "Nothing of ours runs.\n"


@pytest.mark.redis
@pytest.mark.haproxy
@pytest.mark.parametrize("command", ["up", "demo"])
def test_a_port_in_use_is_named(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = PortPlan.free(3)
    with socket.create_server(("127.0.0.1", plan.grid)):
        assert call(monkeypatch, command, "--port-base", str(plan.base)) == 1

    told = capsys.readouterr().err
    assert f"error: in use by another program: port {plan.grid} of 127.0.0.1" in told
    assert f"PORT_BASE={plan.base + 100}" in told


@pytest.mark.redis
@pytest.mark.haproxy
@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("up", "--nodes", "0"), 2, "--nodes"),
        (("up", "--port-base", "70000"), 1, "the port base must be 1 to 65436"),
        (("demo", "--nodes", "1"), 2, "at least 2"),
        (("sideways",), 2, "No such command"),
    ],
)
def test_wrong_arguments(
    arguments: tuple[str, ...],
    code: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(monkeypatch, *arguments) == code
    assert told in capsys.readouterr().err


def test_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "--help") == 0
    assert "Redis, nodes and HAProxy" in capsys.readouterr().out
