"""What operators, HAProxy and Prometheus ask a node; on a port of its own that clients never see.

``listener`` accepts its connections and ``connection`` serves the first three of these paths; aiohttp serves the rest,
and those three to whoever has shown a token.

| path | answer |
|---|---|
| ``/healthz`` | 200 as long as the event loop turns: a node that fails this should be restarted |
| ``/readyz`` | 200 if new clients are welcome, else 503 with the reasons: send them elsewhere for now |
| ``/metrics`` | for Prometheus |
| ``/openapi.json`` | describes the admin API, ``/v1/…`` |
| ``/console/`` | a page for people; see ``console`` |
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from ssl import SSLContext
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger
from aiohttp.typedefs import Handler

from gateway.adapters.admin.api import AdminApi
from gateway.adapters.admin.connection import REQUEST_SECONDS, AdminConnection
from gateway.adapters.admin.console import Console
from gateway.adapters.admin.listener import AdminListener
from gateway.adapters.admin.problems import HEADERS, Kind, Problem
from gateway.adapters.admin.public_pages import Page, PublicPages
from gateway.catalogue import log_events as events
from gateway.catalogue.refusals import AdminRefusal
from gateway.ports import EventLog, Metrics

SHUTDOWN_SECONDS: Final = 1.0
"""How long ``close`` waits for answers under way: they take milliseconds."""

BODY_OVERHEAD: Final = 64 * 1024
"""Bytes that a request may have beyond the largest value: what is around it, and escapes."""

LINE_BYTES: Final = 64 * 1024
"""Longest line of a request, in bytes: the longest parameters, each character written as twelve (``%F0%9F%98%80``)."""

KEEP_ALIVE_SECONDS: Final = 75.0
"""How long a connection over which a token came may be idle: what most servers allow, and clients expect."""

LINGER_SECONDS: Final = 2.0
"""How long the rest of a body that nobody wants is read after the answer, so that the answer arrives: a connection that
is closed with something unread is reset."""

_QUIET: Final = logging.getLogger("gateway.admin.http")
"""Takes aiohttp's complaints of requests that are no HTTP: with a traceback each, anybody could fill the log by them.
Whoever sent one gets a 400; what is wrong on this side is told as ``admin_failed``."""
_QUIET.setLevel(logging.CRITICAL)

PATHS: Final = ("/healthz", "/readyz", "/metrics", "/openapi.json", "/v1/…", "/console/")
"""For people who ask for a page that does not exist."""


class AdminServer:
    """An HTTP server: health and metrics for everybody, the admin API for those who have a token.

    Keep it on an inner network all the same.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        ready: Callable[[], Sequence[str]],
        warnings: Callable[[], Sequence[str]] = tuple,
        metrics_text: Callable[[], bytes],
        metrics: Metrics,
        tls: Callable[[], SSLContext] | None = None,
        log: EventLog,
        knows: Callable[[str], bool] = lambda _: False,
        api: AdminApi | None = None,
        console: Console | None = None,
        value_bytes: int = 0,
    ) -> None:
        """Prepare; ``start`` listens.

        Args:
            host: name or address to listen on.
            port: 0 takes a free one; see ``port``.
            ready: the reasons for not being ready, in words for people; empty if ready. Must not block.
            warnings: what is wrong with no harm to readiness, in words for people; shown beside it. Must not block.
            metrics_text: all metrics in the text format of Prometheus. Must not block.
            metrics: where it is counted who is refused.
            tls: tells how to speak TLS with a connection that begins now; None to speak none.
            log: where bugs and crowds are told.
            knows: whether the value of an Authorization header is that of an administrator, who has a place apart; by
                default, nobody's is.
            api: the admin API; None leaves it out.
            console: the page for operators; None leaves it out.
            value_bytes: largest value of a topic, in bytes: so large may the body of a request be, and a bit larger.
        """
        self._host = host
        self._port = port
        self._pages = PublicPages(ready=ready, warnings=warnings, metrics_text=metrics_text)
        self._metrics = metrics
        self._tls = tls
        self._log = log
        self._knows = knows
        self._api = api
        self._console = console
        self._body_bytes = value_bytes + BODY_OVERHEAD
        self._runner: web.AppRunner | None = None
        self._listener: AdminListener | None = None

    @property
    def port(self) -> int:
        """The port in use: the real one after ``start``, also where 0 was asked for."""
        return self._port

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be used, for example because another process has it.
        """
        patience = Patience(self._connection_of)
        middlewares = [self._tell_problems, patience.wait]
        if self._console is not None:
            middlewares.insert(0, self._console.origins.allow)
        app = web.Application(middlewares=middlewares, client_max_size=self._body_bytes)
        app.on_response_prepare.append(_hide_versions)
        for path, (_, make) in self._pages.pages.items():
            app.router.add_get(path.decode(), _handler(make))
        if self._api is not None:
            self._api.add_to(app.router)
        if self._console is not None:
            self._console.add_to(app.router, self._established)
        runner = web.AppRunner(
            app,
            access_log=_QUIET,
            access_log_class=self._answers(),
            handle_signals=False,
            shutdown_timeout=SHUTDOWN_SECONDS,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            lingering_time=LINGER_SECONDS,
            logger=_QUIET,
            max_line_size=LINE_BYTES,
            max_field_size=LINE_BYTES,
        )
        await runner.setup()
        make_protocol = runner.server
        assert make_protocol is not None, "it is set up"  # noqa: S101 - as aiohttp does
        listener = AdminListener(
            self._host,
            self._port,
            make=make_protocol,
            pages=self._pages,
            knows=self._knows,
            body_bytes=self._body_bytes,
            tls=self._tls,
            metrics=self._metrics,
            log=self._log,
        )
        try:
            await listener.start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        self._listener = listener
        self._port = listener.port

    async def close(self) -> None:
        """Stop listening; answers under way are finished. Does nothing if not started."""
        runner, self._runner = self._runner, None
        if runner is not None and self._listener is not None:
            self._listener.stop()
            await runner.cleanup()
            self._listener.close()
        if self._api is not None:
            await self._api.close()

    def _connection_of(self, request: web.BaseRequest) -> AdminConnection | None:
        return None if self._listener is None else self._listener.connection_of(request)

    def _established(self, request: web.Request) -> None:
        """A console has a session: it is authenticated."""
        connection = self._connection_of(request)
        if connection is not None:
            connection.promote()

    def _answers(self) -> type[AbstractAccessLogger]:
        """Make what aiohttp tells of each answer when it is written, which is how it can be asked to log accesses."""
        connection_of = self._connection_of

        class Answers(AbstractAccessLogger):
            def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
                del time
                connection = connection_of(request)
                if connection is not None:
                    connection.answered(may_go_on=bool(response.keep_alive))

        return Answers

    @web.middleware
    async def _tell_problems(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn everything that goes wrong into problem details; no bug shows its trace to whoever asks."""
        try:
            return await handler(request)
        except web.HTTPMethodNotAllowed as refused:
            allow = ", ".join(sorted({*refused.allowed_methods, "OPTIONS"}))
            if request.method == "OPTIONS":
                return web.Response(status=204, headers={"Allow": allow, **HEADERS})
            detail = f"this page knows {allow}"
            return Problem(Kind.METHOD_NOT_ALLOWED, detail, headers={"Allow": allow}).response()
        except web.HTTPNotFound:
            detail = f"there are {', '.join(PATHS)}; a slash inside a topic is written %2F"
            return Problem(Kind.NO_SUCH_PAGE, detail).response()
        except web.HTTPRequestEntityTooLarge:
            detail = f"a request has at most {self._body_bytes} bytes"
            return Problem(Kind.TOO_LARGE, detail, headers={"Connection": "close"}).response()
        except web.HTTPException as other:
            return Problem(Kind.BAD_REQUEST, other.reason).response()
        except Problem as problem:
            return problem.response()
        except Exception as bug:  # noqa: BLE001 - the log tells it, whoever asks does not need to know
            self._log.emit(events.ADMIN_FAILED, path=request.path, error=bug)
            return Problem(Kind.INTERNAL, "this is a bug of the gateway; the log of the node says more").response()


def _handler(make: Callable[[], Page]) -> Handler:
    async def handle(_request: web.Request) -> web.StreamResponse:
        page = make()
        return web.Response(status=page.status, body=page.body, headers={"Content-Type": page.content_type, **HEADERS})

    return handle


async def _hide_versions(_request: web.Request, response: web.StreamResponse) -> None:
    """Tell nobody which versions of what answer here."""
    response.headers["Server"] = "gateway"


class Patience:
    """Stands between aiohttp and what it serves.

    Args:
        connection_of: tells over which connection a request came.
    """

    def __init__(self, connection_of: Callable[[web.BaseRequest], AdminConnection | None]) -> None:
        self._connection_of = connection_of

    @web.middleware
    async def wait(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Read the body in time, if it is that of a caller; nobody wants that of others."""
        connection = self._connection_of(request)
        if connection is None:
            raise web.HTTPRequestTimeout  # it has ended meanwhile, and hears nothing
        connection.begin()
        if not connection.is_caller:
            response = await handler(request)
            if connection.ends_with_answer:
                response.force_close()
            return response
        if request.can_read_body:
            try:
                async with asyncio.timeout(REQUEST_SECONDS):
                    await request.read()
            except TimeoutError:
                connection.refuse(AdminRefusal.SLOW)
                raise web.HTTPRequestTimeout from None
        response = await handler(request)
        if response.status in {401, 429}:
            # The token that gave this connection its place is one no more.
            response.force_close()
        return response
