"""The registry is complete and its ranges mean what the protocol says (section 8)."""

from __future__ import annotations

import pytest

from gateway.core.wire import codes
from gateway.core.wire.codes import (
    AT_ONCE_RANGE,
    CLOSE_CODES,
    ERRORS,
    LATER_RANGE,
    NEVER_RANGE,
    CloseCode,
    ErrorCode,
    Outcome,
    Reconnect,
    reconnect_for,
)


def test_every_error_code_has_a_spec() -> None:
    assert set(ERRORS) == set(ErrorCode)
    for code, spec in ERRORS.items():
        assert spec.code is code
        assert spec.meaning.endswith(".")


def test_the_retryable_errors() -> None:
    """Clients repeat these by themselves, so each must mean that nothing was done."""
    assert {code.value for code, spec in ERRORS.items() if spec.retryable} == {
        "grid_unavailable",
        "draining",
        "rate_limited",
        "authentication_unavailable",
        "not_master",
        "try_later",
        "too_many_sessions",
        "handshake_timeout",
    }


def test_every_close_code_is_declared_once_and_by_its_name() -> None:
    declared = [name for name, each in vars(codes).items() if isinstance(each, CloseCode)]
    assert declared == [each.name.upper() for each in CLOSE_CODES]
    assert len(CLOSE_CODES) == len({each.code for each in CLOSE_CODES}) == len({each.name for each in CLOSE_CODES})


@pytest.mark.parametrize("close", CLOSE_CODES, ids=lambda close: close.name)
def test_a_close_code_can_be_sent_and_says_what_it_means(close: CloseCode) -> None:
    """RFC 6455 section 7.4: 1000 and 1009 are for us to send, and 4000 to 4999 are ours."""
    assert close.code in {1000, 1009} or close.code in range(4000, 4300)
    assert close.meaning.endswith(".")
    assert close.name.isidentifier()
    assert close.reconnect is reconnect_for(close.code)
    assert len(close.name) <= 123, "a close frame has room for 123 bytes of reason"


def test_the_ranges_do_not_overlap() -> None:
    assert not set(AT_ONCE_RANGE) & set(LATER_RANGE)
    assert not set(LATER_RANGE) & set(NEVER_RANGE)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (None, Reconnect.AT_ONCE),
        (1000, Reconnect.NEVER),
        (1001, Reconnect.AT_ONCE),
        (1002, Reconnect.NEVER),
        (1005, Reconnect.AT_ONCE),
        (1006, Reconnect.AT_ONCE),
        (1008, Reconnect.NEVER),
        (1009, Reconnect.NEVER),
        (1011, Reconnect.AT_ONCE),
        (1012, Reconnect.AT_ONCE),
        (1015, Reconnect.AT_ONCE),
        (3999, Reconnect.AT_ONCE),
        (4000, Reconnect.AT_ONCE),
        (4099, Reconnect.AT_ONCE),
        (4100, Reconnect.LATER),
        (4199, Reconnect.LATER),
        (4200, Reconnect.NEVER),
        (4299, Reconnect.NEVER),
        (4300, Reconnect.AT_ONCE),
    ],
)
def test_the_range_of_a_code_is_what_the_client_does(code: int | None, expected: Reconnect) -> None:
    assert reconnect_for(code) is expected


@pytest.mark.promise("P7", "P9")
@pytest.mark.parametrize(
    ("close", "expected"),
    [
        (codes.GOING_AWAY, Reconnect.AT_ONCE),
        (codes.SLOW_CONSUMER, Reconnect.AT_ONCE),
        (codes.FENCED, Reconnect.AT_ONCE),
        (codes.GRID_UNAVAILABLE, Reconnect.LATER),
        (codes.STALE_ATTEMPT, Reconnect.LATER),
        (codes.REFUSED, Reconnect.NEVER),
        (codes.SESSION_EXPIRED, Reconnect.NEVER),
    ],
)
def test_what_never_ends_a_session_lets_its_client_come_back(close: CloseCode, expected: Reconnect) -> None:
    """P7 and P9."""
    assert close.reconnect is expected


def test_wire_names_are_lower_case() -> None:
    for name in (*ErrorCode, *Outcome, *codes.FailoverReason):
        assert name.value.isidentifier()
        assert name.value == name.value.lower()
