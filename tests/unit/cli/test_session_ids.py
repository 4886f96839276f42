"""Ids of sessions are random text: one of 64 begins with a dash, and is an id all the same."""

from __future__ import annotations

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


def test_what_is_no_id_is_still_a_flag(run: Run, asked: list[tuple[str, ...]]) -> None:
    result = run("admin", "sessions", "-x", environment={"GATEWAY_ADMIN_TOKEN": "gwadm_x"})

    assert (result.code, "No such option" in result.err) == (2, True)
    assert asked == []
