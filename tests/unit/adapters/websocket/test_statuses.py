"""Every answer that the protocol's document lists is given, and no other (docs/reference/protocol.md, 1.3)."""

from __future__ import annotations

import re
from http import HTTPStatus
from pathlib import Path
from typing import Final

import pytest

from gateway.adapters import websocket
from gateway.adapters.websocket import upgrade as upgrade_module
from gateway.adapters.websocket.upgrade import REQUEST_TIMEOUT
from gateway.adapters.websocket.upgrade_request import HEAD_BYTES
from gateway.ports import ConnectionRejected
from tests.unit.adapters.websocket.conftest import REQUEST, Port

DOCUMENT: Final = Path(__file__).parents[4] / "docs" / "reference" / "protocol.md"

REQUESTS: Final[dict[int, list[bytes]]] = {
    101: [REQUEST + b"\r\n"],
    400: [
        b"HELO gateway.example\r\n\r\n",
        REQUEST.replace(b"Host: gateway.example\r\n", b"") + b"\r\n",
        REQUEST + b"Host: gateway.example\r\n\r\n",
        REQUEST + b"Content-Length: 1\r\n\r\n",
        REQUEST.replace(b"ZSBub25jZQ==", b"") + b"\r\n",
        REQUEST.replace(b"gateway.v1.json", b"gateway.v0.json") + b"\r\n",
        REQUEST.replace(b"/v1/connect", b"/v1/connect?token=x") + b"\r\n",
    ],
    403: [REQUEST + b"Origin: https://other.example\r\n\r\n"],
    404: [REQUEST.replace(b"/v1/connect", b"/v2/connect") + b"\r\n"],
    405: [REQUEST.replace(b"GET", b"POST") + b"\r\n"],
    408: [REQUEST],
    426: [
        REQUEST.replace(b"Upgrade: websocket\r\n", b"") + b"\r\n",
        REQUEST.replace(b"Version: 13", b"Version: 12") + b"\r\n",
    ],
    429: [REQUEST + b"\r\n"],
    431: [REQUEST + b"X: " + b"x" * HEAD_BYTES],
    503: [REQUEST + b"\r\n"],
    505: [REQUEST.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n"],
}
"""For each status, requests that are answered with it."""

HEADERS: Final = {
    405: b"\r\nAllow: GET\r\n",
    426: b"\r\nUpgrade: websocket\r\n",
    429: b"\r\nRetry-After: 3\r\n",
    503: b"\r\nRetry-After: 1\r\n",
}
"""What RFC 9110 wants in answers, or what a balancer can make use of."""


def listed() -> dict[int, str]:
    """Read the table of 1.3: what each status means."""
    section = DOCUMENT.read_text().partition("\n1.3 ")[2].partition("\n1.4 ")[0]
    return {int(status): meaning for status, meaning in re.findall(r"^\| (\d{3}) \| ([^|]+) \|", section, re.MULTILINE)}


@pytest.mark.parametrize(
    ("status", "request_"),
    [(status, each) for status, some in REQUESTS.items() for each in some],
    ids=lambda each: each if isinstance(each, int) else "",
)
async def test_each_status_is_answered(
    port: Port, monkeypatch: pytest.MonkeyPatch, status: int, request_: bytes
) -> None:
    if status == 408:
        monkeypatch.setattr(upgrade_module, "REQUEST_TIMEOUT", 0.05)
    port.is_accepting = status != 503
    if status == 429:
        port.admission.refuse_with = ConnectionRejected(
            "limit_x: too many", limit="limit_x", retry_after=2.5, elsewhere=False
        )
    peer = await port.dial()
    await peer.send(request_)

    answer = await peer.until(b"\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert HEADERS.get(status, b"") in answer
    if status != 101:
        assert (await peer.rest()).endswith(b"\n"), "a sentence, and the end"


def test_the_document_lists_these_and_no_others() -> None:
    assert listed().keys() == REQUESTS.keys()


def test_no_status_is_written_anywhere_that_the_document_does_not_list() -> None:
    # What calls are answered is on a page of its own (docs/reference/client-api.md).
    files = set(Path(str(websocket.__file__)).parent.glob("*.py"))
    sources = "".join(each.read_text() for each in files if each.name != "call.py")
    named = {HTTPStatus[name].value for name in re.findall(r"HTTPStatus\.([A-Z_]+)", sources)}

    assert named | {101} == listed().keys()


def test_the_numbers_in_the_document_are_those_of_the_code() -> None:
    meanings = listed()

    assert f"in time: {REQUEST_TIMEOUT:g} s" in meanings[408]
    assert f"longer than {HEAD_BYTES // 1024} KiB" in meanings[431]
