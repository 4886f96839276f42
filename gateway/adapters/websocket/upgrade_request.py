"""The HTTP request that opens a WebSocket (RFC 6455 section 4), without I/O: read, judged, answered.

Reading is left to llhttp, the parser of Node.js, by way of httptools. What it lets through is judged here; see ADR 0012
for why aiohttp, which serves everything else, does not serve this.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from hashlib import sha1
from http import HTTPStatus
from math import ceil
from typing import Final, NamedTuple
from urllib.parse import unquote_plus

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from gateway.catalogue.refusals import UpgradeRefusal as Why
from gateway.core.wire.codec import SUBPROTOCOL
from gateway.ports import HISTORY_PATH, LIST_PATH, PUBLISH_PATH, SEND_PATH, STREAM_PATH, VALUES_PATH, ConnectionRejected

CONNECT_PATH: Final = "/v1/connect"
"""The path of WebSockets (protocol 1.1); all others of the client port are calls."""

ANY_ORIGIN: Final = "*"
"""In the allow-list: pages of every origin may connect."""

LOOPBACK_ORIGINS: Final = "loopback"
"""In the allow-list: pages that the visitor's own machine serves may connect, on whatever port."""

_OF_THIS_MACHINE: Final = re.compile(
    r"https?://(?:(?:[a-z0-9-]+\.)*localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]{1,5})?"
)
"""Origins of such pages: browsers look none of these names up elsewhere."""

SECRET_PARAMETERS: Final = frozenset({"token", "secret"})
"""Query parameters that are refused: what stands in a URL stands in logs (P8)."""

ROUTE_HINTS: Final = (b"node=", b"backup=")
"""Begin the query parameters by which a client names the node that served it last, and its backup (protocol 1.1)."""

HEAD_BYTES: Final = 16 * 1024
"""Longest head of a request: twice what most servers allow, as cookies of a whole site may be among it."""

_ONCE: Final = frozenset({b"host", b"origin", b"sec-websocket-key", b"sec-websocket-version"})
"""Headers that a request has once or not at all. Of two, a proxy may look at one and this node at the other."""

_AUTHORITY: Final = re.compile(rb"https?://[^/?#]*", re.IGNORECASE)
"""Begins a target in absolute form, which a server has to understand (RFC 9112 section 3.2.2)."""

_ACCEPT_KEY: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""Section 1.3: shows that whoever answers knows of WebSockets."""

_PATH: Final = CONNECT_PATH.encode()
_EXACT: Final = frozenset({PUBLISH_PATH.encode(), SEND_PATH.encode(), STREAM_PATH.encode(), LIST_PATH.encode()})
_READ: Final = (VALUES_PATH.encode(), HISTORY_PATH.encode())
_PROTOCOL: Final = SUBPROTOCOL.encode()
_MAY_HOLD_SECRET: Final = re.compile(b"|".join((b"%", *[re.escape(name.encode()) for name in SECRET_PARAMETERS])))
_SECURE_SCHEMES: Final = frozenset({b"https", b"wss"})
_NONCE_BYTES: Final = 16
_VERSION: Final = b"13"

_SWITCH: Final = (
    b"HTTP/1.1 101 Switching Protocols\r\n"
    b"Upgrade: websocket\r\n"
    b"Connection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: %b\r\n"
    b"Sec-WebSocket-Protocol: " + _PROTOCOL + b"\r\n\r\n"
)


class Refusal(Exception):
    """The request is not served.

    Attributes:
        reason: as it is counted.
        status: of the answer.
        headers: of the answer, besides the usual ones.
    """

    def __init__(
        self, reason: Why, status: HTTPStatus, sentence: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.status = status
        self.headers = headers or {}

    def response(self, *, has_body: bool = True) -> bytes:
        """Write the answer; the connection ends with it.

        Args:
            has_body: False for the answer to HEAD, which is only the head of what GET would be told.
        """
        body = f"{self}\n".encode()
        headers = {
            "Content-Type": "text/plain; charset=utf-8",
            "Content-Length": str(len(body)),
            "Connection": "close",
        } | dict(self.headers)
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\n{head}\r\n".encode() + (body if has_body else b"")


class Request(NamedTuple):
    """The head of a request.

    Attributes:
        method: GET, for one that can be served.
        target: path and query; also if it was sent in absolute form.
        upgrades: whether it asks for another protocol, and says so to proxies.
        headers: by their names in lower case; those that occur several times are joined by commas, in order.
        rest: what came after the head.
    """

    method: bytes
    target: bytes
    upgrades: bool
    headers: Mapping[bytes, bytes]
    rest: bytes = b""


class RequestReader:
    """Reads the head of one request."""

    __slots__ = ("_body", "_complete", "_headers", "_is_ambiguous", "_parser", "_read", "_target", "_upgrades")

    def __init__(self) -> None:
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._read = 0
        self._complete = False
        self._upgrades = False
        self._is_ambiguous = False
        self._body = b""
        """What came of it with the head."""

    @property
    def has_begun(self) -> bool:
        """Whether something has come."""
        return self._read > 0

    def feed(self, data: bytes) -> Request | None:
        """Take in bytes.

        Returns:
            The request when its head is complete; before and after that None.

        Raises:
            Refusal: it is not HTTP/1.1, or too long.
        """
        parser = self._parser
        if parser is None:
            return None
        self._read += len(data)
        rest = b""
        try:
            parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
        except HttpParserError:
            # What is wrong behind the head, in a body or in another request, is of no interest: none is served.
            if not self._complete:
                self.close()
                raise Refusal(Why.MALFORMED, HTTPStatus.BAD_REQUEST, "this is not a request of HTTP/1.1") from None
        rest = rest or self._body
        if self._read - len(rest) > HEAD_BYTES:
            self.close()
            raise Refusal(
                Why.HEAD_TOO_LONG,
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"the head of a request has at most {HEAD_BYTES} bytes",
            )
        if not self._complete:
            return None
        method, version = parser.get_method(), parser.get_http_version()
        self.close()
        if version != "1.1":
            raise Refusal(Why.HTTP_VERSION, HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "this is not a request of HTTP/1.1")
        if self._is_ambiguous or b"host" not in self._headers:
            raise Refusal(
                Why.AMBIGUOUS,
                HTTPStatus.BAD_REQUEST,
                "Host is missing, or a header is there twice that a request has once",
            )
        if authority := _AUTHORITY.match(self._target):
            self._target = self._target[authority.end() :]
        return Request(method, self._target, self._upgrades, self._headers, rest)

    def close(self) -> None:
        """Let go of the parser, which holds this object as this object holds it."""
        self._parser = None

    # --- called by the parser -----------------------------------------------------------------------------------------

    # Only the first request counts: what a client sends behind it is not added to it.

    def on_url(self, part: bytes) -> None:
        """Take in a part of the target."""
        if not self._complete:
            self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take in a header."""
        if self._complete:
            return
        name = name.lower()
        known = self._headers.get(name)
        if known is None:
            self._headers[name] = value
        else:
            self._headers[name] = known + b", " + value
            self._is_ambiguous = self._is_ambiguous or name in _ONCE

    def on_body(self, part: bytes) -> None:
        """Take in what came of a body; a call has one, and says how long it is."""
        self._body += part

    def on_headers_complete(self) -> None:
        """Note that the head is complete, and what it asks for."""
        if not self._complete and self._parser is not None:
            self._complete = True
            self._upgrades = self._parser.should_upgrade()


def accept(request: Request, origins: frozenset[str]) -> bytes:
    """Judge a request.

    Args:
        request: its head.
        origins: values of the Origin header that are allowed. A request without one is no browser and is allowed.

    Returns:
        The answer that opens the WebSocket.

    Raises:
        Refusal: the request must not be served (protocol 1.3).
    """
    headers = request.headers
    path, _, query = request.target.partition(b"?")
    if path != _PATH:
        raise Refusal(
            Why.PATH,
            HTTPStatus.NOT_FOUND,
            f"there are only {CONNECT_PATH}, {PUBLISH_PATH}, {SEND_PATH}, {STREAM_PATH}, {LIST_PATH}, "
            f"{VALUES_PATH}TOPIC and {HISTORY_PATH}SELECTOR here",
        )
    if request.method != b"GET":
        raise Refusal(Why.METHOD, HTTPStatus.METHOD_NOT_ALLOWED, "a WebSocket is opened with GET", {"Allow": "GET"})
    if not request.upgrades or not _lists(headers.get(b"upgrade", b"").lower(), b"websocket"):
        raise Refusal(
            Why.NO_UPGRADE,
            HTTPStatus.UPGRADE_REQUIRED,
            "this is a WebSocket endpoint",
            {"Upgrade": "websocket", "Connection": "Upgrade, close"},
        )
    _check_origin(headers.get(b"origin"), origins)
    if _holds_secret(query):
        raise Refusal(
            Why.SECRET_IN_URL,
            HTTPStatus.BAD_REQUEST,
            "tokens and secrets do not belong into a URL; send them in the first packet",
        )
    if headers.get(b"sec-websocket-version") != _VERSION:
        raise Refusal(
            Why.WEBSOCKET_VERSION,
            HTTPStatus.UPGRADE_REQUIRED,
            "this is version 13 of the WebSocket protocol",
            {"Upgrade": "websocket", "Connection": "Upgrade, close", "Sec-WebSocket-Version": _VERSION.decode()},
        )
    if not _lists(headers.get(b"sec-websocket-protocol", b""), _PROTOCOL):
        raise Refusal(
            Why.SUBPROTOCOL, HTTPStatus.BAD_REQUEST, f"offer the subprotocol {SUBPROTOCOL} in Sec-WebSocket-Protocol"
        )
    if b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0":
        raise Refusal(Why.BODY, HTTPStatus.BAD_REQUEST, "a request that opens a WebSocket has no body")
    key = headers.get(b"sec-websocket-key", b"")
    if not _is_nonce(key):
        raise Refusal(Why.WEBSOCKET_KEY, HTTPStatus.BAD_REQUEST, "Sec-WebSocket-Key must be 16 bytes in base64")
    return _SWITCH % binascii.b2a_base64(sha1(key + _ACCEPT_KEY, usedforsecurity=False).digest(), newline=False)


def is_call(request: Request) -> bool:
    """Tell whether a request is a call, and does not open a WebSocket."""
    path = request.target.partition(b"?")[0]
    return path in _EXACT or path.startswith(_READ)


def accept_call(request: Request, origins: frozenset[str], *, is_secure: bool) -> None:
    """Judge where a call comes from; what it asks for is judged by whoever executes it.

    Args:
        request: its head.
        origins: as for ``accept``. Browsers name the origin of a page, or say ``Sec-Fetch-Site`` where they do not.
        is_secure: whether the request came over TLS.

    Raises:
        Refusal: a page of an origin that is not allowed makes it, or there is a secret in the URL.
    """
    headers = request.headers
    origin = headers.get(b"origin")
    if origin is None and (site := headers.get(b"sec-fetch-site")) is not None:
        # A page at the very address that it calls; a name that was made to lead here is no allowed origin.
        here = b"%b://%b" % (b"https" if is_secure else b"http", headers.get(b"host", b""))
        origin = here if site == b"same-origin" else b""
    _check_origin(origin, origins)
    if _holds_secret(request.target.partition(b"?")[2]):
        raise Refusal(
            Why.SECRET_IN_URL,
            HTTPStatus.BAD_REQUEST,
            "tokens and secrets do not belong into a URL; send them in the header Authorization",
        )


def comes_back(request: Request) -> bool:
    """Tell whether a request names the node that served the client last, or its backup: it comes back to a session."""
    query = b"&" + request.target.partition(b"?")[2]
    return any(b"&" + hint in query for hint in ROUTE_HINTS)


def forwarded_by_tls(request: Request) -> bool:
    """Tell whether a request came over TLS to a proxy, as that says."""
    said = request.headers.get(b"x-forwarded-proto")
    return said is not None and any(each.strip() in _SECURE_SCHEMES for each in said.lower().split(b","))


def refusal_of(reason: ConnectionRejected) -> Refusal:
    """Say that a limit is reached: 503 where another node may help, so that a load balancer asks it, else 429."""
    status = HTTPStatus.SERVICE_UNAVAILABLE if reason.elsewhere else HTTPStatus.TOO_MANY_REQUESTS
    seconds = ceil(reason.retry_after)
    return Refusal(Why.LIMIT, status, f"{reason}; try again in {seconds} s", {"Retry-After": str(seconds)})


def _lists(value: bytes, name: bytes) -> bool:
    return value == name or name in [each.strip() for each in value.split(b",")]


def _holds_secret(query: bytes) -> bool:
    # Nearly none has any of this, so nearly none has to be taken apart.
    if _MAY_HOLD_SECRET.search(query) is None:
        return False
    return not SECRET_PARAMETERS.isdisjoint(
        unquote_plus(pair.partition("=")[0]) for pair in query.decode("latin-1").split("&")
    )


def _check_origin(origin: bytes | None, allowed: frozenset[str]) -> None:
    if origin is not None and not _is_allowed(origin.decode("latin-1"), allowed):
        raise Refusal(
            Why.ORIGIN, HTTPStatus.FORBIDDEN, "pages of this origin may not connect; see the setting 'origins'"
        )


def _is_allowed(origin: str, allowed: frozenset[str]) -> bool:
    if origin in allowed or ANY_ORIGIN in allowed:
        return True
    return LOOPBACK_ORIGINS in allowed and _OF_THIS_MACHINE.fullmatch(origin) is not None


def _is_nonce(key: bytes) -> bool:
    try:
        return len(binascii.a2b_base64(key, strict_mode=True)) == _NONCE_BYTES
    except binascii.Error:
        return False
