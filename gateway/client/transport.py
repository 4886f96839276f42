"""One WebSocket to a node, by aiohttp. Nothing else in the client knows aiohttp's WebSockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from socket import gaierror
from ssl import SSLContext
from typing import Final, Protocol

import aiohttp

from gateway.core.client.endings import CannotConnect, Ending
from gateway.core.client.urls import describe_url
from gateway.core.topology import is_secure
from gateway.core.wire.codec import SUBPROTOCOL

MAX_MESSAGE_BYTES: Final = 16 * 2**20
"""Largest message accepted from a node. Nodes write much smaller ones; a large value may make one large packet."""

CLOSE_TIMEOUT: Final = 1.0
"""Seconds to wait until a node answers a close frame, before the connection is dropped by force."""

_MAX_REASON_BYTES: Final = 123
"""Longest reason in a close frame (RFC 6455 section 5.5: 125 bytes, 2 of which are the code)."""

_ABNORMAL: Final = 1006
"""What aiohttp reports for a connection that ended without a close frame (RFC 6455 section 7.1.5)."""

_PASSING_STATUSES: Final = frozenset({408, 425, 429})
"""HTTP statuses of the 400 range that are no verdict on the request: timeout, too early, too many."""

_LONGEST_RETRY: Final = 300.0
"""Seconds of a Retry-After that are believed: some proxy's idea of an hour would outlive every session."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class Transport(Protocol):
    """A connection as the client needs it."""

    async def send(self, message: bytes) -> None:
        """Write one text message; waits while the transport pushes back.

        Raises:
            ConnectionError: the connection is gone.
        """

    async def receive(self) -> str | bytes | Ending:
        """Wait for the next message; an ``Ending`` says that there will be none."""

    async def close(self, code: int, reason: str, last_messages: list[bytes]) -> None:
        """Write the last messages and a close frame, wait a bounded time for the answer, and drop the connection."""


class WebSocketTransport:
    """A ``Transport`` over aiohttp; make one with ``open_websocket``."""

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        self._websocket = websocket

    async def send(self, message: bytes) -> None:
        """See ``Transport.send``."""
        await self._websocket.send_frame(message, aiohttp.WSMsgType.TEXT)

    async def receive(self) -> str | bytes | Ending:
        """See ``Transport.receive``."""
        message = await self._websocket.receive()
        match message.type:
            case aiohttp.WSMsgType.TEXT | aiohttp.WSMsgType.BINARY:
                data: str | bytes = message.data
                return data
            case aiohttp.WSMsgType.CLOSE:
                code: int = message.data
                reason = message.extra or "no reason given"
                return Ending(code=code, message=f"the node closed the connection with code {code}: {reason}")
            case aiohttp.WSMsgType.ERROR:
                return Ending(message=f"the connection failed: {message.data}")
            case _:
                code = self._websocket.close_code or _ABNORMAL
                return Ending(code=None if code == _ABNORMAL else code, message="the connection was lost")

    async def close(self, code: int, reason: str, last_messages: list[bytes]) -> None:
        """See ``Transport.close``."""
        cut = reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore").encode()
        # When the time is over, aiohttp answers the cancellation by dropping the connection: that is what it is for.
        with contextlib.suppress(TimeoutError, ConnectionError, aiohttp.ClientError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                try:
                    for message in last_messages:
                        await self._websocket.send_frame(message, aiohttp.WSMsgType.TEXT)
                finally:
                    await self._websocket.close(code=code, message=cut)


def make_http() -> aiohttp.ClientSession:
    """Make the aiohttp session that all connections of one gateway session are opened with; the caller closes it."""
    return aiohttp.ClientSession(
        # After a failure a name may lead elsewhere, and a connection that is left of an attempt leads back.
        connector=aiohttp.TCPConnector(use_dns_cache=False, force_close=True),
        # Stickiness is the route hint's business; a cookie would lead back to a node that asked to go away.
        cookie_jar=aiohttp.DummyCookieJar(),
        # Each attempt has its own time limit, and a WebSocket lasts for as long as it can.
        timeout=aiohttp.ClientTimeout(total=None),
        middlewares=(_refuse_redirects,),
    )


async def _refuse_redirects(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Refuse to be sent elsewhere: it might be a place without TLS, and the secret would follow."""
    response = await handler(request)
    if response.status in _REDIRECTS:
        response.close()
        message = (
            f"{describe_url(str(request.url))} redirects elsewhere (HTTP status {response.status}); use the final URL"
        )
        raise CannotConnect(Ending(message=message, permanent=True))
    return response


async def open_websocket(
    http: aiohttp.ClientSession, url: str, *, seconds: float, ssl: SSLContext | None, headers: Mapping[str, str]
) -> WebSocketTransport:
    """Open a WebSocket that speaks this protocol.

    Args:
        http: whose connections to use.
        url: of a node or a load balancer, with the route hint.
        seconds: time for the name look-up, TCP, TLS and the HTTP upgrade together.
        ssl: for ``wss``; None for the system's trust store.
        headers: to send with the upgrade.

    Raises:
        CannotConnect: it could not be opened.
    """
    try:
        async with asyncio.timeout(seconds):
            websocket = await http.ws_connect(
                url,
                protocols=(SUBPROTOCOL,),
                headers=headers,
                ssl=ssl if ssl is not None else True,
                # Compression costs a node eight to ten times the memory per connection.
                compress=0,
                # The session machine watches for silence itself.
                heartbeat=None,
                max_msg_size=MAX_MESSAGE_BYTES,
            )
    except TimeoutError:
        where = describe_url(url)
        raise CannotConnect(Ending(message=f"{where} did not answer within {seconds:g} s", hung=True)) from None
    except aiohttp.WSServerHandshakeError as refused:
        permanent = 400 <= refused.status < 500 and refused.status not in _PASSING_STATUSES  # noqa: PLR2004 - HTTP
        message = f"{describe_url(url)} answered the upgrade with HTTP status {refused.status}"
        retry_after = _retry_after(refused)
        raise CannotConnect(Ending(message=message, permanent=permanent, retry_after=retry_after)) from None
    except aiohttp.ClientConnectorCertificateError as error:
        raise CannotConnect(Ending(message=f"{describe_url(url)}: {error}", permanent=True)) from None
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, ValueError) as error:
        # A host with a label that is empty or too long is a UnicodeError, of the look-up.
        raise CannotConnect(
            Ending(message=f"{describe_url(url)} is not a usable URL: {error}", permanent=True)
        ) from None
    except (aiohttp.ClientError, OSError) as error:
        raise CannotConnect(
            Ending(message=f"{describe_url(url)} cannot be reached: {_why(error)}{_hint(url, error)}")
        ) from None
    transport = WebSocketTransport(websocket)
    if websocket.protocol != SUBPROTOCOL:
        await transport.close(1002, "the subprotocol was not accepted", [])
        message = f"{describe_url(url)} is not a gateway: it did not accept the subprotocol {SUBPROTOCOL}"
        raise CannotConnect(Ending(message=message, permanent=True))
    return transport


def _why(error: Exception) -> str:
    """Say what went wrong, in the words of the system: aiohttp's tell of its own options, and of refusals nothing."""
    if not isinstance(error, aiohttp.ClientConnectorError) or isinstance(error, aiohttp.ClientSSLError):
        return str(error)
    reason = error.os_error
    if isinstance(reason, gaierror) or not reason.errno:
        return reason.strerror or str(error)
    return os.strerror(reason.errno)


def _hint(url: str, error: Exception) -> str:
    """Say what a failure means that comes of TLS on one side alone."""
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError) and not is_secure(url):
        return "; if it speaks TLS, its URL begins with wss"
    if isinstance(error, aiohttp.ClientConnectorSSLError) and "WRONG_VERSION_NUMBER" in str(error):
        return "; it answers, but not in TLS, and a URL that begins with wss asks for TLS"
    return ""


def _retry_after(refused: aiohttp.WSServerHandshakeError) -> float | None:
    """Read the seconds of a Retry-After header; a date, which it may be too, is no use without the server's clock."""
    text = "" if refused.headers is None else refused.headers.get("Retry-After", "").strip()
    return min(float(text), _LONGEST_RETRY) if text.isascii() and text.isdecimal() else None
