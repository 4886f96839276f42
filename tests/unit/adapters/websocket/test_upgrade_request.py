"""Requests that open a WebSocket, and those that do not (RFC 6455 section 4.2, protocol 1.1 to 1.4)."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.websocket.upgrade_request import HEAD_BYTES, Refusal, Request, RequestReader, accept

HEAD = {
    "Host": "gateway.example",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "gateway.v1.json",
}
"""With the key of the example in RFC 6455 section 1.3."""

NOBODY: frozenset[str] = frozenset()


def written(target: str = "/v1/connect", method: str = "GET", **changes: str | None) -> bytes:
    """Write a request; None leaves a header out, and a name with underscores is one with hyphens."""
    headers: dict[str, str] = dict(HEAD)
    for name, value in changes.items():
        header = name.replace("_", "-")
        headers.pop(header, None)
        if value is not None:
            headers[header] = value
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode()


def read(*pieces: bytes) -> Request | None:
    reader = RequestReader()
    for piece in pieces:
        request = reader.feed(piece)
        if request is not None:
            return request
    return None


def answered(data: bytes, origins: frozenset[str] = NOBODY) -> bytes:
    request = read(data)
    assert request is not None
    return accept(request, origins)


def status_of(data: bytes, origins: frozenset[str] = NOBODY) -> int:
    with pytest.raises(Refusal) as caught:
        answered(data, origins)
    return caught.value.status


def test_the_answer_opens_the_websocket() -> None:
    status, *lines = answered(written()).decode().split("\r\n")

    assert status == "HTTP/1.1 101 Switching Protocols"
    assert lines[-2:] == ["", ""]
    assert dict(line.split(": ") for line in lines[:-2]) == {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
        "Sec-WebSocket-Protocol": "gateway.v1.json",
    }


@pytest.mark.parametrize(
    "data",
    [
        written("/v1/connect?node=n2"),
        written("/v1/connect?"),
        written(Upgrade="WebSocket"),
        written(Connection="keep-alive, Upgrade"),
        written(Sec_WebSocket_Protocol="other, gateway.v1.json"),
        written(Sec_WebSocket_Extensions="permessage-deflate"),
        written(Content_Length="0"),
        b"\r\n" + written(),
    ],
)
def test_all_forms_of_a_good_request_are_served(data: bytes) -> None:
    assert answered(data).startswith(b"HTTP/1.1 101 ")


@given(st.lists(st.integers(0, 400), max_size=6), st.binary(max_size=40))
def test_a_request_is_read_however_its_bytes_are_cut_and_what_follows_is_kept(cuts: list[int], rest: bytes) -> None:
    data = written(X_Forwarded_For="10.0.0.1")
    places = [0, *sorted(cut % (len(data) - 1) for cut in cuts), len(data) - 1]
    pieces = [data[start:end] for start, end in pairwise(places)]

    request = read(*pieces, data[-1:] + rest)

    assert request is not None
    assert request.upgrades
    assert (request.method, request.target, request.rest) == (b"GET", b"/v1/connect", rest)
    assert request.headers[b"x-forwarded-for"] == b"10.0.0.1"


def test_headers_that_come_again_are_joined_in_order() -> None:
    data = written().replace(b"\r\n\r\n", b"\r\nX-Forwarded-For: a\r\nx-forwarded-for: b, c\r\n\r\n")

    request = read(data)

    assert request is not None
    assert request.headers[b"x-forwarded-for"] == b"a, b, c"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (written("/"), 404),
        (written("/v1/connect/"), 404),
        (written("/v1/%63onnect"), 404),
        (written(method="POST"), 405),
        (written(Upgrade=None), 426),
        (written(Connection=None), 426),
        (written(Upgrade="h2c"), 426),
        (written(Sec_WebSocket_Version="8"), 426),
        (written(Sec_WebSocket_Version=None), 426),
        (written(Sec_WebSocket_Protocol=None), 400),
        (written(Sec_WebSocket_Protocol="gateway.v2.json"), 400),
        (written(Sec_WebSocket_Key=None), 400),
        (written(Sec_WebSocket_Key="short"), 400),
        (written(Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQ== "[:-2] + "!"), 400),
        (written(Content_Length="3") + b"abc", 400),
        (written("/v1/connect?token=x"), 400),
        (written("/v1/connect?node=n1&secret=x"), 400),
        (written("/v1/connect?%74oken=x"), 400),
        (written("/v1/connect?token"), 400),
    ],
)
def test_other_requests_are_refused(data: bytes, status: int) -> None:
    assert status_of(data) == status


def test_a_page_may_connect_only_from_an_origin_that_is_allowed() -> None:
    page = written(Origin="https://app.example")

    assert status_of(page) == 403
    assert status_of(page, frozenset({"https://other.example"})) == 403
    assert answered(page, frozenset({"https://app.example"})).startswith(b"HTTP/1.1 101 ")
    assert answered(page, frozenset({"*"})).startswith(b"HTTP/1.1 101 ")


@pytest.mark.parametrize(
    ("origin", "is_ours"),
    [
        *((each, True) for each in ("http://localhost:5173", "https://localhost", "http://127.0.0.1:18000")),
        *((each, True) for each in ("http://127.9.9.9", "http://[::1]:3000", "http://app.localhost:8080")),
        *((each, False) for each in ("http://localhost.evil.example", "http://127.0.0.1.evil.example", "null")),
        *((each, False) for each in ("http://evil.example/localhost", "http://10.0.0.5", "file://", "")),
        *((each, False) for each in ("http://localhost:5173.evil.example", "http://evil-localhost", "ftp://localhost")),
    ],
)
def test_loopback_allows_the_pages_of_this_machine_and_no_others(origin: str, is_ours: bool) -> None:
    page = written(Origin=origin)

    if is_ours:
        assert answered(page, frozenset({"loopback"})).startswith(b"HTTP/1.1 101 ")
    else:
        assert status_of(page, frozenset({"loopback"})) == 403
    assert status_of(page) == 403


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET /v1/connect HTTP/1.1\r\nBad Name: x\r\n\r\n",
        b"GET /v1/connect HTTP/1.1\r\n folded: x\r\n\r\n",
        written(Content_Length="3").replace(b"Content-Length: 3", b"Content-Length: 3\r\nContent-Length: 4"),
    ],
    ids=["TLS", "space in a name", "folded line", "two lengths"],
)
def test_what_is_not_http_is_refused(data: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        read(data)

    assert caught.value.status == 400


@pytest.mark.parametrize("version", [b"", b" HTTP/1.0", b" HTTP/2.0"])
def test_only_the_version_of_http_that_can_upgrade_is_served(version: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        read(written().replace(b" HTTP/1.1", version))

    assert caught.value.status in {400, 505}


def test_a_head_is_bounded() -> None:
    start = b"GET /v1/connect HTTP/1.1\r\n"
    reader = RequestReader()
    assert reader.feed(start) is None

    line = b"X-Padding: %b\r\n" % (b"y" * 1000)
    for _ in range((HEAD_BYTES - len(start)) // len(line)):
        assert reader.feed(line) is None
    with pytest.raises(Refusal) as caught:
        reader.feed(line)

    assert caught.value.status == 431


@given(st.binary(max_size=400), st.booleans())
def test_no_bytes_raise_anything_but_a_refusal(data: bytes, after_a_start: bool) -> None:
    start = b"GET /v1/connect HTTP/1.1\r\n" if after_a_start else b""
    with suppress(Refusal):
        request = read(start + data)
        if request is not None:
            accept(request, NOBODY)


def test_a_refusal_says_why_and_ends_the_connection() -> None:
    with pytest.raises(Refusal) as caught:
        answered(written(method="PUT"))

    head, _, body = caught.value.response().decode().partition("\r\n\r\n")
    lines = head.split("\r\n")
    assert lines[0] == "HTTP/1.1 405 Method Not Allowed"
    assert {"Connection: close", "Allow: GET", f"Content-Length: {len(body)}"} <= set(lines)
    assert body == "a WebSocket is opened with GET\n"
