"""What operators, HAProxy and Prometheus ask a node; on a port of its own that clients never see.

| path | answer |
|---|---|
| ``/healthz`` | 200 as long as the event loop turns: a node that fails this should be restarted |
| ``/readyz`` | 200 if new clients are welcome, else 503 with the reasons: send them elsewhere for now |
| ``/metrics`` | for Prometheus |
| ``/openapi.json`` | describes the admin API, ``/v1/…`` |
| ``/console/`` | a page for people; see ``console`` |
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from ssl import SSLContext
from typing import Final

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.adapters.admin.api import AdminApi
from gateway.adapters.admin.console import Console
from gateway.adapters.admin.patience import Patience, PatientSite
from gateway.adapters.admin.problems import HEADERS, Kind, Problem
from gateway.catalogue import log_events as events
from gateway.ports import EventLog, Metrics

METRICS_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The text format of Prometheus that every version of it reads."""

SHUTDOWN_SECONDS: Final = 1.0
"""How long ``close`` waits for answers under way: they take milliseconds."""

BODY_OVERHEAD: Final = 64 * 1024
"""Bytes that a request may have beyond the largest value: what is around it, and escapes."""

LINE_BYTES: Final = 64 * 1024
"""Longest line of a request, in bytes: the longest parameters, each character written as twelve (``%F0%9F%98%80``)."""

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
        tls: SSLContext | None = None,
        log: EventLog,
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
            metrics: where it is counted who was not waited for.
            tls: how to speak TLS; None to speak none.
            log: where bugs are told.
            api: the admin API; None leaves it out.
            console: the page for operators; None leaves it out.
            value_bytes: largest value of a topic, in bytes: so large may the body of a request be, and a bit larger.
        """
        self._host = host
        self._port = port
        self._ready = ready
        self._warnings = warnings
        self._metrics_text = metrics_text
        self._tls = tls
        self._patience = Patience(metrics)
        self._log = log
        self._api = api
        self._console = console
        self._body_bytes = value_bytes + BODY_OVERHEAD
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The port in use: the real one after ``start``, also where 0 was asked for."""
        return self._port

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be used, for example because another process has it.
        """
        app = web.Application(middlewares=[self._tell_problems, self._patience.wait], client_max_size=self._body_bytes)
        app.on_response_prepare.append(_hide_versions)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        if self._api is not None:
            self._api.add_to(app.router)
        if self._console is not None:
            self._console.add_to(app.router)
        runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=SHUTDOWN_SECONDS,
            logger=_QUIET,
            max_line_size=LINE_BYTES,
            max_field_size=LINE_BYTES,
        )
        await runner.setup()
        try:
            site = PatientSite(runner, self._host, self._port, ssl_context=self._tls)
            site.patience = self._patience
            await site.start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        self._port = int(runner.addresses[0][1])

    async def close(self) -> None:
        """Stop listening; answers under way are finished. Does nothing if not started."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        if self._api is not None:
            await self._api.close()

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

    async def _healthz(self, _request: web.Request) -> web.Response:
        return _json(200, {"alive": True})

    async def _readyz(self, _request: web.Request) -> web.Response:
        try:
            reasons, warnings = list(self._ready()), list(self._warnings())
        except Exception as error:  # noqa: BLE001 - a node that cannot tell is not ready
            reasons, warnings = [f"readiness cannot be told: {type(error).__name__}"], []
        return _json(503 if reasons else 200, {"ready": not reasons, "reasons": reasons, "warnings": warnings})

    async def _metrics(self, _request: web.Request) -> web.Response:
        headers = {"Content-Type": METRICS_CONTENT_TYPE, **HEADERS}
        return web.Response(body=self._metrics_text(), headers=headers)


async def _hide_versions(_request: web.Request, response: web.StreamResponse) -> None:
    """Tell nobody which versions of what answer here."""
    response.headers["Server"] = "gateway"


def _json(status: int, content: object) -> web.Response:
    return web.Response(
        status=status, body=orjson.dumps(content) + b"\n", headers={"Content-Type": "application/json", **HEADERS}
    )
