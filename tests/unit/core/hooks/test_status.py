"""What is said of a hook in the grid: read as it was written, and anything else as nothing."""

from __future__ import annotations

import pytest

from gateway.core.hooks.status import LONGEST_ERROR, HookStatus, fingerprint, read_status


@pytest.mark.parametrize(
    "status",
    [
        HookStatus(),
        HookStatus(node="n1", delivered=5.0, failures=3, error="no", failed=8.0, failing=4.0, attempt=9.0),
        HookStatus(url="https://x", events=("session_closed", "session_expired")),
        HookStatus(suspended=fingerprint("https://x/")),
    ],
)
def test_it_is_read_as_it_was_written(status: HookStatus) -> None:
    assert read_status(status.encode()) == status


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"nonsense",
        b"[]",
        b'{"failures": "3", "node": 7, "delivered": true, "x": 1}',
        b'{"events": [1]}',
        b'{"events": "x"}',
    ],
)
def test_what_cannot_be_read_is_as_if_it_had_not_been_said(text: bytes) -> None:
    assert read_status(text) == HookStatus()


def test_errors_are_bounded_and_addresses_are_not_shown() -> None:
    assert len(read_status(HookStatus(error="x" * 10_000).encode()).error) == LONGEST_ERROR
    assert "secret" not in fingerprint("https://x/?token=secret")
    assert fingerprint("https://x/") != fingerprint("https://y/")
