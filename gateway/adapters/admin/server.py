"""What operators, HAProxy and Prometheus ask a node; on a port of its own that clients never see.

| path | answer |
|---|---|
| ``/healthz`` | 200 as long as the event loop turns: a node that fails this should be restarted |
| ``/readyz`` | 200 if new clients are welcome, else 503 with the reasons: send them elsewhere for now |
| ``/metrics`` | for Prometheus |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ssl import SSLContext
from typing import Final

import orjson
from aiohttp import web

METRICS_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The text format of Prometheus that every version of it reads."""

SHUTDOWN_SECONDS: Final = 1.0
"""How long ``close`` waits for answers under way: they take milliseconds."""

PATHS: Final = ("/healthz", "/readyz", "/metrics")


class AdminServer:
    """An HTTP server with three pages. It has no authentication and changes nothing: keep it on an inner network."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        ready: Callable[[], Sequence[str]],
        metrics_text: Callable[[], bytes],
        tls: SSLContext | None = None,
    ) -> None:
        """Prepare; ``start`` listens.

        Args:
            host: name or address to listen on.
            port: 0 takes a free one; see ``port``.
            ready: the reasons for not being ready, in words for people; empty if ready. Must not block.
            metrics_text: all metrics in the text format of Prometheus. Must not block.
            tls: how to speak TLS; None to speak none.
        """
        self._host = host
        self._port = port
        self._ready = ready
        self._metrics_text = metrics_text
        self._tls = tls
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
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_route("*", "/{rest:.*}", self._unknown)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_SECONDS)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port, ssl_context=self._tls).start()
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

    async def _healthz(self, _request: web.Request) -> web.Response:
        return _json(200, {"alive": True})

    async def _readyz(self, _request: web.Request) -> web.Response:
        try:
            reasons = list(self._ready())
        except Exception as error:  # noqa: BLE001 - a node that cannot tell is not ready
            reasons = [f"readiness cannot be told: {type(error).__name__}"]
        return _json(503 if reasons else 200, {"ready": not reasons, "reasons": reasons})

    async def _metrics(self, _request: web.Request) -> web.Response:
        headers = {"Content-Type": METRICS_CONTENT_TYPE, **_HEADERS}
        return web.Response(body=self._metrics_text(), headers=headers)

    async def _unknown(self, _request: web.Request) -> web.Response:
        return _json(404, {"error": "there is no such page", "pages": PATHS})


_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def _json(status: int, content: object) -> web.Response:
    return web.Response(
        status=status, body=orjson.dumps(content) + b"\n", headers={"Content-Type": "application/json", **_HEADERS}
    )
