"""The console: a page for operators, and the gateway's protocol for it, both on the admin port.

| path | answer |
|---|---|
| ``/``, ``/console`` | leads to the page |
| ``/console/`` | the page; anybody may load it, it shows nothing without a token |
| ``/console/…`` | its parts, and the JavaScript client as ``/console/client/…`` |
| ``/v1/connect`` | the WebSocket of the wire protocol; the token of an administrator goes into the hello |

Whatever a console shows comes by the protocol or the admin API, with the rights of the token. The page itself is the
same for everybody, comes from this node alone, and may talk to no other place than the nodes of its cluster.
"""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Final

from aiohttp import web

from gateway.adapters.admin.access import Action, AdminTokens, Caller, GrantedTo, allows
from gateway.adapters.admin.console_connection import ConsoleConnection
from gateway.adapters.admin.console_origins import ConsoleOrigins
from gateway.core.pacing.failures import Failures
from gateway.core.policy.system_roles import CONSOLE, CONSOLE_TOPICS
from gateway.core.wire.codec import SUBPROTOCOL
from gateway.ports import (
    Connection,
    Credentials,
    CredentialsRefused,
    EntryForbidden,
    Identity,
    VerificationRefused,
)

PAGE: Final = Path(__file__).parent / "page"
"""The files of the page."""

CLIENT: Final = PAGE / "client"
"""The JavaScript client. In a checkout it is a link to its one source, and in a wheel what the link led to."""

PRINCIPAL_PREFIX: Final = "admin:"
"""Before the name of an administrator: what a session of theirs belongs to is told from any user's."""

_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
"""What the page consists of; told here, because the tables of operating systems differ."""

_POLICY: Final = (
    # Nothing inline, nothing from elsewhere, no plugin, no frame around it, no form to elsewhere; 'self' is for the
    # WebSocket, too.
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'{}; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""With room for the admin ports of the other nodes, at which the page goes on if this one dies."""

SECURITY_HEADERS: Final = {
    "Content-Security-Policy": _POLICY.format(""),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
"""Of every part of the page."""

CACHING: Final = "no-cache"
"""Kept, but asked for again each time, which an ETag answers with a few bytes: after a deploy nobody runs half of the
old page against the new API."""


class _File:
    """One part of the page, as it is sent."""

    def __init__(self, path: Path) -> None:
        self.body = path.read_bytes()
        self.tag = hashlib.sha256(self.body).hexdigest()[:32]
        self.type = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"


class ConsoleAuthenticator:
    """Knows administrators by their tokens: an ``Authenticator`` for the consoles' hello, and a ``Directory`` of them.

    Args:
        tokens: the administrators; None if administration is off.
        granted: what roles may do.
        failures: counts, by address, those here and at the API together.
    """

    def __init__(self, tokens: AdminTokens | None, granted: GrantedTo, failures: Failures) -> None:
        self._tokens = tokens
        self._granted = granted
        self._failures = failures

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        """See ``Authenticator.authenticate``."""
        if self._tokens is None:
            raise CredentialsRefused("administration is off: the setting admin_tokens_file names no file")
        caller = self._tokens.find(credentials.secret or "")
        if caller is None:
            # Looked up before, so that a valid token gets in whoever failed from its address. Who fails too often is
            # not told whether this one was wrong, too, and fills no log.
            if wait := self._failures.failed(credentials.address, time.monotonic()):
                raise VerificationRefused("too many without a valid token came from this address; try again", wait)
            raise CredentialsRefused("this is no token of the file of administrators")
        identity = self._identity_of(caller)
        if identity is None:
            raise EntryForbidden(
                f"the token is accepted, but its roles lack {Action.NODES_READ}, which the console cannot do without"
            )
        return identity

    def find(self, principal: str) -> Identity | None:
        """See ``Directory.find``; another token of the same name makes another identity."""
        if self._tokens is None or not principal.startswith(PRINCIPAL_PREFIX):
            return None
        caller = self._tokens.named(principal.removeprefix(PRINCIPAL_PREFIX))
        return None if caller is None else self._identity_of(caller)

    def _identity_of(self, caller: Caller) -> Identity | None:
        granted = self._granted(caller.roles)
        if not allows(granted, Action.NODES_READ):
            return None
        roles = {CONSOLE, CONSOLE_TOPICS} if allows(granted, Action.TOPICS_READ) else {CONSOLE}
        name = PRINCIPAL_PREFIX + caller.name
        # Under this name a console can be found and revoked like any other session.
        return Identity(
            principal=name, roles=frozenset(roles), properties={"token": caller.fingerprint}, credential=name
        )


class Console:
    """Serves the console.

    Args:
        serve: serves a connection as the application does at the client port, but for administrators only.
        check: refuses a request that was meant for another host, by raising.
        accepting: whether new connections are wanted.
        message_bytes: largest message accepted of a console, in bytes.
        origins: of the consoles of all nodes, which may go on here when their own node has died.
    """

    def __init__(
        self,
        *,
        serve: Callable[[Connection], Awaitable[None]],
        check: Callable[[web.Request], None],
        accepting: Callable[[], bool],
        message_bytes: int,
        origins: ConsoleOrigins,
    ) -> None:
        self.origins = origins
        self._serve = serve
        self._check = check
        self._accepting = accepting
        self._message_bytes = message_bytes
        self._connections: set[ConsoleConnection] = set()
        self._established: Callable[[web.Request], None] = lambda _: None
        # The names of files come from the disk and never from a request, so that no path leads out.
        self._files = _files()

    def add_to(self, router: web.UrlDispatcher, established: Callable[[web.Request], None]) -> None:
        """Add the paths of the console.

        Args:
            router: where.
            established: is told of a request whose WebSocket has a session now, and so belongs to an administrator.
        """
        self._established = established
        for short in ("/", "/console"):
            router.add_get(short, self._redirect)
        router.add_get("/console/{name:.*}", self._file)
        router.add_get("/v1/connect", self._connect)

    # --- The page -----------------------------------------------------------------------------------------------------

    async def _redirect(self, _request: web.Request) -> web.Response:
        return web.Response(status=HTTPStatus.PERMANENT_REDIRECT, headers={"Location": "/console/", **SECURITY_HEADERS})

    async def _file(self, request: web.Request) -> web.Response:
        self._check(request)
        file = self._files.get(request.match_info["name"] or "index.html")
        if file is None:
            raise web.HTTPNotFound
        headers = {"Cache-Control": CACHING, "ETag": f'"{file.tag}"', **SECURITY_HEADERS}
        if file is self._files["index.html"] and (others := await self.origins.sources()):
            headers["Content-Security-Policy"] = _POLICY.format(f" {others}")
        known = request.if_none_match or ()
        if any(each.value in {file.tag, "*"} for each in known):
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        return web.Response(body=file.body, content_type=file.type, charset="utf-8", headers=headers)

    # --- The protocol -------------------------------------------------------------------------------------------------

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        self._check(request)
        refusal = await self._refusal(request)
        if refusal is not None:
            return refusal
        websocket = web.WebSocketResponse(
            protocols=(SUBPROTOCOL,), compress=False, max_msg_size=self._message_bytes, autoping=True
        )
        await websocket.prepare(request)
        connection = ConsoleConnection(websocket, request.remote or "")
        self._connections.add(connection)
        serving = asyncio.create_task(self._answer(connection, request), name="serve-console")
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
        return websocket

    async def _answer(self, connection: ConsoleConnection, request: web.Request) -> None:
        await self._serve(connection)
        if connection.close_code is None:
            self._established(request)

    async def _refusal(self, request: web.Request) -> web.Response | None:
        if not self._accepting():
            return _refuse(HTTPStatus.SERVICE_UNAVAILABLE, "this node takes no new connections; try another")
        if request.headers.get("Upgrade", "").lower() != "websocket":
            return _refuse(HTTPStatus.UPGRADE_REQUIRED, "this path speaks WebSocket")
        origin = request.headers.get("Origin")
        own = origin is None or origin.partition("://")[2] == request.host
        if not own and not await self.origins.knows(origin or ""):
            return _refuse(HTTPStatus.FORBIDDEN, "only this node's own page and those of its cluster may connect here")
        offered = [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        if SUBPROTOCOL not in offered:
            return _refuse(HTTPStatus.BAD_REQUEST, f"offer the subprotocol {SUBPROTOCOL}")
        if {"token", "secret"} & request.query.keys():
            return _refuse(HTTPStatus.BAD_REQUEST, "secrets do not belong into a URL; send them in the first packet")
        return None

    def close(self, code: int, reason: str) -> None:
        """Close the connections of all consoles."""
        for connection in list(self._connections):
            connection.close(code, reason)


@cache
def _files() -> Mapping[str, _File]:
    """Read the page, once for all nodes of a process."""
    return {name: _File(path) for name, path in _parts()}


def _parts() -> Iterator[tuple[str, Path]]:
    # A link to a folder is not gone into by itself.
    for path in sorted({*PAGE.rglob("*"), *CLIENT.glob("*.js")}):
        if path.is_file():
            yield path.relative_to(PAGE).as_posix(), path


def _refuse(status: HTTPStatus, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers={"Cache-Control": "no-store"})
