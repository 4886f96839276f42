"""Ids are random text, of which one in 64 begins with a dash, and values may be below zero: neither is a flag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.cli.admin.api_client import ApiClient
from tests.unit.cli.conftest import Run

DASHED = "-h3_Yk9wq-aB0cD1eF2gH3"
"""As ``secrets.token_urlsafe(16)`` makes them, and begun like the shortest flag."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What the admin API is asked for; it answers that it did it."""
    requests: list[tuple[str, ...]] = []

    def ask(_self: ApiClient, method: str, *path: str, **_options: Any) -> dict[str, Any] | None:
        requests.append((method, *path))
        return None if method == "DELETE" else {"session": DASHED, "node": "n2", "live": None, "until": None}

    monkeypatch.setattr(ApiClient, "ask", ask)
    return requests


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        (("sessions", DASHED), ("GET", "sessions", DASHED)),
        (("sessions", "--json", DASHED), ("GET", "sessions", DASHED)),
        (("sessions", "-" + DASHED[:-1]), ("GET", "sessions", "-" + DASHED[:-1])),
        (("close", "--yes", DASHED), ("DELETE", "sessions", DASHED)),
        (("move", DASHED, "--to", "n2"), ("POST", "sessions", DASHED, "move")),
        (("notice", DASHED, "hello"), ("POST", "sessions", DASHED, "notice")),
        (("revoke", "session", DASHED, "--yes"), ("POST", "revocations")),
        (("unblock", "session", DASHED), ("DELETE", "revocations", "session", DASHED)),
    ],
)
def test_an_id_that_begins_with_a_dash_is_no_flag(
    run: Run, asked: list[tuple[str, ...]], arguments: tuple[str, ...], request_: tuple[str, ...]
) -> None:
    result = run("admin", *arguments, environment={"GATEWAY_ADMIN_TOKEN": "gwadm_x"})

    assert (result.code, result.err) == (0, "")
    assert asked == [request_]


@pytest.mark.parametrize("zone", ["-h3_Yk9wq-aB0cD1", "north", "--abcdefghijklmn"])
def test_a_uid_of_a_zone_may_begin_with_a_dash(run: Run, monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    bodies: list[Any] = []

    def ask(_self: ApiClient, _method: str, *_path: str, body: dict[str, Any]) -> dict[str, Any]:
        bodies.append(body)
        return {"name": "north", "uid": zone}

    monkeypatch.setattr(ApiClient, "ask", ask)
    result = run("admin", "zone", "join", zone, environment={"GATEWAY_ADMIN_TOKEN": "gwadm_x"})

    assert (result.code, result.out) == (0, f"this cluster is in zone north ({zone})\n")
    assert bodies == [{"zone": zone, "urls": []}]


@pytest.mark.parametrize("value", ["-5", "-0.25", "-1e-3", "7"])
def test_a_value_may_be_below_zero(run: Run, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    bodies: list[Any] = []

    def ask(_self: ApiClient, _method: str, *_path: str, body: dict[str, Any], **_options: Any) -> dict[str, Any]:
        bodies.append(body)
        return {"version": 1, "event": "1-1"}

    monkeypatch.setattr(ApiClient, "ask", ask)
    result = run("admin", "set", "temperature", value, environment={"GATEWAY_ADMIN_TOKEN": "gwadm_x"})

    assert (result.code, result.err) == (0, "")
    assert bodies == [{"value": float(value)}]


def test_a_value_below_zero_is_published_and_a_strange_flag_is_still_told(run: Run) -> None:
    """Nobody listens there: what is told is that, and no more that there is no such option."""
    given = ("--url", "ws://127.0.0.1:1", "--timeout", "0.2")

    assert "No such option" not in run("pub", "temperature", "-5", *given).err
    assert "No such option '--strange'" in run("pub", "temperature", "-5", "--strange", *given).err.replace(": ", " ")
    # What follows an option is its value, and is told as such.
    assert "--timeout" in run("pub", "temperature", "5", "--timeout", "-5").err


@pytest.mark.parametrize("command", ["promote", "retire"])
def test_an_id_of_a_key_may_begin_with_a_dash(run: Run, command: str, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    run("keys", "create", "--token-keys-file", str(file))
    result = run("keys", command, "-h3_Yk9w", "--token-keys-file", str(file))

    assert "No such option" not in result.err
    assert "-h3_Yk9w" in result.err


def test_a_flag_that_looks_like_an_id_is_a_flag(run: Run, tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"

    assert str(missing) in run("keys", "promote", "-h3_Yk9w", "--config", str(missing)).err


def test_what_is_no_id_is_still_a_flag(run: Run, asked: list[tuple[str, ...]]) -> None:
    result = run("admin", "sessions", "-x", environment={"GATEWAY_ADMIN_TOKEN": "gwadm_x"})

    assert (result.code, "No such option" in result.err) == (2, True)
    assert asked == []
