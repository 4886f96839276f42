"""A call by HTTP on the client port: one request of a back end, answered, and over (docs: reference/client-api.md).

Its head has been read and judged as that of every connection here (``upgrade``). Who calls is told before its body is
read, so that nobody can have the node hold the bytes of somebody whom it does not know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from math import ceil
from socket import SHUT_WR
from typing import Final

from gateway.adapters.websocket.event_stream import HEAD as STREAM_HEADERS
from gateway.adapters.websocket.event_stream import EventStreamSink, lose_if_unacknowledged
from gateway.adapters.websocket.read_scheduler import PacedReader
from gateway.adapters.websocket.transport import Transport
from gateway.adapters.websocket.upgrade_request import Request
from gateway.catalogue import call_metrics as catalogue
from gateway.catalogue import log_events as events
from gateway.core.wire.codec.calls import write_problem
from gateway.ports import AdmittedCall, Call, CallAnswer, CallRefused, Calls, EventLog, EventSource, Metrics

BODY_SECONDS: Final = 10.0
"""For a body to come, however it trickles in, and for an answer to be taken: as for the request of a WebSocket."""

READ_BYTES: Final = 64 * 1024
"""Read at a time."""

READS_AT_ONCE: Final = 4
"""Reads in one turn of the loop, so that nobody holds up the others."""

LINGER_SECONDS: Final = 1.0
"""For whoever called to read the answer: a socket that is closed with something unread in it throws the answer away."""

GO_ON: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
"""To who waits before it sends a body (RFC 9110 section 10.1.1)."""

PREFLIGHT: Final = b"OPTIONS"
"""By which a browser asks whether a page may make a call, before it makes it."""

SHARED_HEADERS: Final[Mapping[str, str]] = {"Vary": "Origin", "Access-Control-Expose-Headers": "Retry-After"}
"""Besides the origin, of answers to pages."""

PREFLIGHT_HEADERS: Final[Mapping[str, str]] = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key, Last-Event-ID",
    "Access-Control-Max-Age": "600",
}
"""What pages of allowed origins may do; whoever makes the call has to show who it is, and no cookies count."""

PROBLEM_TYPE: Final = "application/problem+json"


class CallGone(Exception):
    """Whoever called has hung up, or does not send its body, or does not take the answer."""


class HttpCall:
    """Reads the body of one call, has it executed, and answers.

    Args:
        transport: that it came over, not blocking.
        reading: waits for it.
        request: the head.
        address: of whoever calls.
        calls: executes it.
        metrics: where it is counted what became of it.
        log: where bugs are told.
        over: called once, when the connection is closed.
    """

    def __init__(
        self,
        transport: Transport,
        reading: PacedReader,
        request: Request,
        address: str,
        *,
        calls: Calls,
        metrics: Metrics,
        log: EventLog,
        over: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._reading = reading
        self._request = request
        self._address = address
        self._calls = calls
        self._metrics = metrics
        self._log = log
        self._over = over
        self._body = bytearray(request.rest)
        self._wanted = 0
        self._is_gone = False
        self._reads = False
        self._changed = asyncio.Event()
        reading.take_over(reading.key, self._read)
        # What comes before it is known whose it is waits in the kernel.
        reading.stop()

    async def run(self) -> None:
        """Serve it."""
        try:
            answer = await self._answer()
            if isinstance(answer, bytes):
                await self._send_in_time(answer)
            else:
                await self._stream(answer)
            await self._linger()
        except (CallGone, TimeoutError):
            self._metrics.add(catalogue.CALLS, label="abandoned")
        finally:
            self._reading.close()
            self._transport.close()
            self._over()

    async def _answer(self) -> bytes | EventSource:
        if self._request.method == PREFLIGHT:
            return _response(HTTPStatus.NO_CONTENT, None, b"", {**self._shared, **PREFLIGHT_HEADERS})
        try:
            admitted = await self._calls.admit(self._call())
            answer = await self._execute(admitted)
        except CallRefused as refused:
            if refused.status is not HTTPStatus.TOO_MANY_REQUESTS:
                self._metrics.add(catalogue.CALLS, label="refused")
            return _refusal(refused, self._shared)
        except CallGone:
            raise
        except Exception as error:  # noqa: BLE001 - a bug is told, and whoever called gets an answer
            self._metrics.add(catalogue.CALLS, label="failed")
            self._log.emit(events.CALL_FAILED, path=self._path, error=error)
            return _refusal(
                CallRefused(
                    HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "the node failed; what was asked may be done"
                ),
                self._shared,
            )
        if isinstance(answer, CallAnswer):
            return _response(answer.status, "application/json", answer.content, self._shared)
        return answer

    async def _execute(self, admitted: AdmittedCall) -> CallAnswer | EventSource:
        body = b""
        try:
            if admitted.most_bytes:
                body = await self._read_body(admitted.most_bytes)
        except BaseException:
            admitted.abandon()
            raise
        return await admitted.execute(body)

    @property
    def _shared(self) -> dict[str, str]:
        """Headers by which a browser lets a page read the answer; its origin was found to be allowed."""
        origin = self._request.headers.get(b"origin")
        return {} if origin is None else {"Access-Control-Allow-Origin": origin.decode("latin-1"), **SHARED_HEADERS}

    @property
    def _path(self) -> str:
        return self._request.target.partition(b"?")[0].decode("latin-1")

    def _call(self) -> Call:
        return Call(
            method=self._request.method.decode("latin-1"),
            path=self._path,
            query=self._request.target.partition(b"?")[2].decode("latin-1"),
            headers={name.decode("latin-1"): value.decode("latin-1") for name, value in self._request.headers.items()},
            address=self._address,
            abandoned=lambda: self._is_gone,
        )

    # --- The body -----------------------------------------------------------------------------------------------------

    async def _read_body(self, size: int) -> bytes:
        self._wanted = size
        if self._request.headers.get(b"expect", b"").lower() == b"100-continue" and not self._body:
            await self._send(GO_ON)
        if len(self._body) < size:
            self._reading.start()
            self._reading.go_on()  # over TLS, more may have come than the descriptor tells of
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while len(self._body) < size and not self._is_gone:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise CallRefused(
                HTTPStatus.REQUEST_TIMEOUT, "too_slow", f"a body must be complete in {BODY_SECONDS:g} seconds"
            ) from None
        self._reading.stop()
        if len(self._body) < size:
            raise CallGone
        if len(self._body) > size:
            raise CallRefused(
                HTTPStatus.BAD_REQUEST, "bad_request", "there is more than one request on this connection"
            )
        return bytes(self._body)

    def _read(self) -> bool:
        """Read some, and tell whether there may be more."""
        for _ in range(READS_AT_ONCE):
            try:
                data = self._transport.recv(READ_BYTES)
            except BlockingIOError:
                return False
            except OSError:
                data = b""
            if not data or self._reads:  # a reader has nothing to say
                self._is_gone = True
                self._changed.set()
                self._reading.stop()
                return False
            if self._wanted:
                self._body += data
            if len(self._body) >= self._wanted:
                self._changed.set()
                return False
        return True

    # --- A stream -----------------------------------------------------------------------------------------------------

    async def _stream(self, source: EventSource) -> None:
        """Write a stream until its reader has gone, or it ends by itself."""
        sink = EventStreamSink(self._transport, self._address, self._changed.set)
        try:
            await self._send_in_time(head_of(HTTPStatus.OK, {**STREAM_HEADERS, **self._shared}))
            lose_if_unacknowledged(self._transport)
            self._reads = True
            self._wanted = 0
            self._reading.start()
            source.begin(sink)
            while not (sink.is_over or self._is_gone):
                self._changed.clear()
                try:
                    async with asyncio.timeout(source.keep_alive):
                        await self._changed.wait()
                except TimeoutError:
                    source.idle()
        except OSError:
            raise CallGone from None
        finally:
            source.ended()
            sink.abort()
            self._reading.stop()

    # --- The answer ---------------------------------------------------------------------------------------------------

    async def _send_in_time(self, answer: bytes) -> None:
        async with asyncio.timeout(BODY_SECONDS):
            await self._send(answer)

    async def _send(self, answer: bytes) -> None:
        left = memoryview(answer)
        while left:
            try:
                left = left[self._transport.send(left) :]
            except BlockingIOError:
                await _writable(self._transport.fileno())
            except OSError:
                raise CallGone from None

    async def _linger(self) -> None:
        """Say that nothing more will be sent, and give the other side the time to read the answer."""
        try:
            self._transport.shutdown(SHUT_WR)
        except OSError:
            return
        self._wanted = 0
        self._body.clear()
        self._reading.start()
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                while not self._is_gone:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return


async def _writable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    loop.add_writer(descriptor, changed.set)
    try:
        await changed.wait()
    finally:
        loop.remove_writer(descriptor)


def _refusal(refused: CallRefused, shared: Mapping[str, str]) -> bytes:
    headers = {**shared, **refused.headers}
    if refused.retry_after is not None:
        headers["Retry-After"] = str(max(1, ceil(refused.retry_after)))
    content = write_problem(refused.status.value, refused.status.phrase, refused.code, str(refused))
    return _response(refused.status, PROBLEM_TYPE, content, headers)


def _response(
    status: HTTPStatus, content_type: str | None, content: bytes, headers: Mapping[str, str] | None = None
) -> bytes:
    lines = {} if content_type is None else {"Content-Type": content_type, "Content-Length": str(len(content))}
    lines |= {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Connection": "close"}
    return head_of(status, {**lines, **(headers or {})}) + content


def head_of(status: HTTPStatus, headers: Mapping[str, str]) -> bytes:
    """Write the head of an answer."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status.value} {status.phrase}\r\n{lines}\r\n".encode("latin-1")
