"""What ``connect`` refuses before it connects, and the errors' own promises."""

from __future__ import annotations

import ssl

import pytest

import gateway.client
from gateway.client import (
    ClearTextWarning,
    GatewayError,
    InvalidProperties,
    RequestRefused,
    RequestTimedOut,
    SessionEnded,
    SessionExpired,
    connect,
)
from gateway.client.options import Options
from gateway.core.client.errors import refusal
from gateway.core.wire.codes import ERRORS, ErrorCode


@pytest.mark.parametrize("name", ["window", "connect_timeout", "request_timeout"])
@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_times_must_be_times(name: str, seconds: float) -> None:
    with pytest.raises(ValueError, match=name):
        connect("ws://h", "alice", **{name: seconds})  # type: ignore[arg-type]


@pytest.mark.parametrize("packets", [0, -1, 1.5, True, "7"])
def test_packets_are_acknowledged_after_a_number_of_them(packets: object) -> None:
    with pytest.raises(ValueError, match="ack_packets is a number of packets above 0"):
        connect("ws://h", ack_packets=packets)  # type: ignore[arg-type]


def test_urls_and_properties_are_checked_at_once() -> None:
    with pytest.raises(ValueError, match="URL"):
        connect([])
    with pytest.raises(InvalidProperties):
        connect("ws://h", properties={"$node": "n1"})
    with pytest.raises(InvalidProperties):
        connect("ws://h", properties={"count": 1})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "headers",
    [
        {"X": 1},
        {"X": None},
        {"X": b"a"},
        {1: "a"},
        {"X": "a\r\nY: b"},
        {"X": "a\0"},
        {"X\n": "a"},
        {"X Y": "a"},
        {"": "a"},
        {"X": "\ud800"},
        "X: a",
    ],
)
def test_headers_are_texts_that_can_be_sent(headers: object) -> None:
    with pytest.raises(ValueError, match="header"):
        connect("ws://h", headers=headers)  # type: ignore[arg-type]


def test_headers_may_hold_whatever_headers_may() -> None:
    connect("ws://localhost", headers={"Origin": "https://a.example", "X-Team!": "f\tx \u00e9"})


@pytest.mark.parametrize("context", ["x", True, False, ssl.CERT_NONE])
def test_tls_is_a_context(context: object) -> None:
    with pytest.raises(ValueError, match="ssl"):
        connect("wss://h", ssl=context)  # type: ignore[arg-type]


def test_options_do_not_show_secrets() -> None:
    options = Options(urls=(), principal="alice", secret="hunter2", headers={"Authorization": "hunter3"})

    assert "hunter" not in repr(options)


def test_every_error_is_one_of_the_gateways() -> None:
    errors = [
        value for value in vars(gateway.client).values() if isinstance(value, type) and issubclass(value, Exception)
    ]

    assert {error.__name__ for error in errors} >= {"ConnectFailed", "SessionEnded", "StreamOverflow", "RequestRefused"}
    assert all(issubclass(error, GatewayError) for error in errors if not issubclass(error, Warning))
    assert issubclass(RequestTimedOut, TimeoutError)


def test_every_code_makes_a_refusal_that_carries_it() -> None:
    for code in ErrorCode:
        error = refusal(code, "")
        assert isinstance(error, RequestRefused)
        assert (error.code, str(error)) == (code, ERRORS[code].meaning)


def test_each_waiter_gets_an_error_of_its_own() -> None:
    ended: SessionEnded = SessionExpired("over", code=ErrorCode.SESSION_EXPIRED)
    again = ended.again()

    assert again is not ended
    assert (type(again), str(again), again.code) == (SessionExpired, "over", ErrorCode.SESSION_EXPIRED)


@pytest.mark.parametrize(
    ("urls", "hosts"),
    [
        ("ws://gateway.example", "gateway.example"),
        (["ws://10.0.0.5:8101", "ws://127.0.0.1:8101", "http://[2001:db8::1]"], "10.0.0.5, 2001:db8::1"),
    ],
)
def test_clear_text_to_another_host_is_warned_of(urls: str | list[str], hosts: str) -> None:
    with pytest.warns(ClearTextWarning, match=f"secrets and tokens go to {hosts} in clear text; use wss"):
        connect(urls, "alice", "secret")


@pytest.mark.parametrize(
    "urls",
    ["wss://gateway.example", "ws://127.0.0.1:8101", "ws://localhost", "ws://[::1]:1", "https://gateway.example"],
)
def test_what_nobody_can_read_is_not_warned_of(urls: str) -> None:
    connect(urls, "alice", "secret")
