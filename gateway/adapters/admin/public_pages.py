"""The pages that need no token and that somebody depends on: health, readiness, metrics. As bytes, and cheap.

They are answered ahead of aiohttp wherever nobody has shown a token, and by it elsewhere; both ask here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

import orjson

from gateway.adapters.admin.pacing import ServiceClass
from gateway.adapters.admin.problems import HEADERS
from gateway.core.pacing.rates import TokenBucket

METRICS_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The text format of Prometheus that every version of it reads."""

RENDERINGS_PER_SECOND: Final = 4.0
"""How often the metrics are written anew, at 2 to 6 ms each, however many ask: whoever asks in between gets what was
written last, a quarter of a second ago at most."""

RENDERINGS_AT_ONCE: Final = 20.0
"""How many may come at once: several Prometheus, and whoever looks by hand, always see this moment."""


@dataclass(frozen=True, slots=True)
class Page:
    """An answer.

    Attributes:
        status: of HTTP.
        content_type: of the body.
        body: of it.
    """

    status: HTTPStatus
    content_type: str
    body: bytes

    def response(self, *, with_body: bool = True, keep_alive: bool = True, said_so: bool = False) -> bytes:
        """Write it as HTTP/1.1.

        Args:
            with_body: False for the answer to HEAD.
            keep_alive: whether another request may follow.
            said_so: whether that has to be said, as to HTTP/1.0.
        """
        connection = "" if keep_alive and not said_so else f"Connection: {'keep-alive' if keep_alive else 'close'}\r\n"
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\n"
            f"Content-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.body)}\r\n"
            f"{_HEADERS}Date: {formatdate(usegmt=True)}\r\nServer: gateway\r\n{connection}\r\n"
        )
        return head.encode() + self.body if with_body else head.encode()


_HEADERS: Final = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())


class PublicPages:
    """Answers them.

    Args:
        ready: the reasons for not being ready, in words for people; empty if ready. Must not block.
        warnings: what is wrong with no harm to readiness, in words for people. Must not block.
        metrics_text: all metrics in the text format of Prometheus. Must not block.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        *,
        ready: Callable[[], Sequence[str]],
        warnings: Callable[[], Sequence[str]],
        metrics_text: Callable[[], bytes],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ready = ready
        self._warnings = warnings
        self._metrics_text = metrics_text
        self._clock = clock
        self._renderings = TokenBucket(RENDERINGS_PER_SECOND, RENDERINGS_AT_ONCE)
        self._rendered: bytes | None = None
        self.pages: Final[Mapping[bytes, tuple[ServiceClass, Callable[[], Page]]]] = {
            b"/healthz": (ServiceClass.HEALTH, self.healthz),
            b"/readyz": (ServiceClass.HEALTH, self.readyz),
            b"/metrics": (ServiceClass.METRICS, self.metrics),
        }

    def healthz(self) -> Page:
        """Tell that the event loop turns."""
        return _json(HTTPStatus.OK, {"alive": True})

    def readyz(self) -> Page:
        """Tell whether new clients are welcome."""
        try:
            reasons, warnings = list(self._ready()), list(self._warnings())
        except Exception as error:  # noqa: BLE001 - a node that cannot tell is not ready
            reasons, warnings = [f"readiness cannot be determined: {type(error).__name__}"], []
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return _json(status, {"ready": not reasons, "reasons": reasons, "warnings": warnings})

    def metrics(self) -> Page:
        """Tell the metrics."""
        if self._renderings.take(self._clock()) == 0 or self._rendered is None:
            self._rendered = self._metrics_text()
        return Page(HTTPStatus.OK, METRICS_CONTENT_TYPE, self._rendered)


def _json(status: HTTPStatus, content: object) -> Page:
    return Page(status, "application/json", orjson.dumps(content) + b"\n")
