"""Streams of durable subscriptions: ``DurableStream``, and how what was read is acknowledged.

The stream itself is one with history (``history_streams``): each event once, in order, whatever happens to the session.
What is added is where it begins, which the grid knows, and that the grid is told how far it came.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, Self

from gateway.client.arguments import optional_seconds_of
from gateway.client.calls import Requests
from gateway.client.consumers import Ack
from gateway.client.history_streams import HistoryStream
from gateway.core.client.errors import GatewayError, RequestRefused, RequestTimedOut, SessionEnded
from gateway.core.client.log_reader import parse_position
from gateway.core.client.request_table import UNNUMBERED
from gateway.core.client.types import Update
from gateway.core.wire.durable_packets import AdvanceDurable, OpenDurable, ReleaseDurable
from gateway.core.wire.packets import EARLIEST, NOW, Reply

SPACING: Final = 0.1
"""Seconds between two acknowledgements that leave by themselves: a program that dies reads again what it had done in so
long, and the grid is asked ten times a second at most."""


def durable_mode(ack: Ack | str, *, shared: bool) -> Ack:
    """Tell how a durable subscription is acknowledged.

    Raises:
        ValueError: not so.
    """
    mode = Ack(ack)
    if not shared and mode not in {Ack.AUTO, Ack.CLIENT}:
        raise ValueError(f"a durable subscription is acknowledged by 'auto' or 'client', not {mode.value!r}")
    return mode


def durable_opening(
    name: str, selector: str, start: str, expires: float | None, *, take: bool, shared: bool
) -> OpenDurable:
    """Make the request that opens a durable subscription; see ``Session.subscribe_durable``.

    Raises:
        InvalidPosition: *start* is none.
        ValueError: *expires* is no length of time.
    """
    life = optional_seconds_of("expires", expires)
    places = {} if start in {EARLIEST, NOW} else parse_position(start)
    return OpenDurable(UNNUMBERED, name, selector, places, start != NOW, life, take, shared)


class Acknowledger:
    """Tells the grid how far a durable subscription was read.

    Args:
        session: which asks.
        name: of the subscription.
        position: where it is when this begins.
        lose: called when the session may not go on with it.

    Attributes:
        error: why it may not; None while it may.
    """

    def __init__(self, session: Requests, name: str, position: str | None, lose: Callable[[], None]) -> None:
        self.error: RequestRefused | None = None
        self._lose = lose
        self._session = session
        self._name = name
        self._reached = position
        self._told = position
        self._sending: asyncio.Task[None] | None = None

    def reached(self, position: str | None) -> None:
        """Everything up to a position is done; the grid is told in a moment."""
        self._reached = position
        if self._reached != self._told and self._sending is None and self.error is None:
            self._sending = asyncio.create_task(self._send(), name=f"acknowledge-{self._name}")

    async def tell(self, seconds: float | None) -> None:
        """Tell the grid what was reached; returns when it has it.

        Raises:
            RequestRefused, RequestTimedOut, SessionEnded: as for ``Session.publish``.
        """
        if self.error is not None:
            raise self.error
        position = self._reached
        if position is None or position == self._told:
            return
        try:
            await self._session.request(AdvanceDurable(UNNUMBERED, self._name, parse_position(position)), seconds)
        except RequestRefused as refused:
            self.error = refused
            self._lose()
            raise
        self._told = position

    async def _send(self) -> None:
        try:
            while self._reached != self._told:
                with contextlib.suppress(RequestTimedOut):  # the grid is told by the next one
                    await self.tell(None)
                await asyncio.sleep(SPACING)
        except (RequestRefused, SessionEnded):
            return  # the reader is told by what it asks for next
        finally:
            self._sending = None

    def stop(self) -> None:
        """Tell nothing more by itself."""
        if self._sending is not None:
            self._sending.cancel()


class DurableStream:
    """The events of a durable subscription: each once, in order, from where its last reader was done.

    Iterate over it with ``async for``. An update is done when the next one is asked for, and then acknowledged by
    itself (``ack="auto"``), or by ``acknowledge`` (``ack="client"``).

    Attributes:
        name: what the principal calls it.
        created: whether there was none before.
    """

    def __init__(self, session: Requests, name: str, stream: HistoryStream, ack: Ack, *, created: bool) -> None:
        self.name = name
        self.created = created
        self._session = session
        self._stream = stream
        self._ack = ack
        self._acknowledger = Acknowledger(session, name, stream.position, stream.close)
        self._releasing: asyncio.Future[Reply] | None = None

    def __repr__(self) -> str:
        return f"<DurableStream {self.name} of {self.selector} at {self.position}>"

    @property
    def selector(self) -> str:
        """Which topics, in canonical form."""
        return self._stream.selector

    @property
    def position(self) -> str | None:
        """Up to where the application has had everything; the grid may not know yet."""
        return self._stream.position

    @property
    def closed(self) -> bool:
        """Whether it gives no more updates."""
        return self._stream.closed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        """Wait for the next update.

        Raises:
            StopAsyncIteration: the stream was closed, or the session.
            DurableInUse: another session has taken the subscription.
            NoSuchDurable: it was removed.
            SessionEnded: the session died of something.
        """
        self._stream.done()
        if self._ack is Ack.AUTO:
            self._acknowledger.reached(self.position)
        if self._acknowledger.error is not None:
            raise self._acknowledger.error
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            if self._acknowledger.error is not None:  # it was lost while this waited
                raise self._acknowledger.error from None
            raise

    async def acknowledge(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - public
        """Say that all updates which were taken so far are done; returns once the grid knows (P4).

        Args:
            timeout: seconds; None for the session's default.

        Raises:
            DurableInUse: another session has taken the subscription, and reads on from what was acknowledged before.
            NoSuchDurable: it was removed.
            RequestRefused, RequestTimedOut, SessionEnded: as for ``Session.publish``.
        """
        self._stream.done()
        self._acknowledger.reached(self.position)
        await self._acknowledger.tell(timeout)

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - public
        """Have the grid told what acknowledges itself, of all updates but the last one that was taken.

        Raises:
            RequestRefused, RequestTimedOut, SessionEnded: as for ``acknowledge``.
        """
        if self._ack is Ack.AUTO and not self.closed:
            await self._acknowledger.tell(timeout)

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - public
        """End the stream, and let other sessions use the subscription; it stays, with its place.

        Cancelling the call, or its time limit, ends the waiting, and what was read last may be read again; the
        subscription is released nevertheless. Closing twice does no harm.

        Args:
            timeout: seconds; None for the session's default.

        Raises:
            RequestRefused, RequestTimedOut, SessionEnded: as for ``acknowledge``.
        """
        limit = self._session.limit(timeout)
        was_closed = self.closed
        try:
            await self.flush(timeout)
        finally:
            self._acknowledger.stop()
            self._stream.close()
            if self._releasing is None and self._acknowledger.error is None:
                self._releasing = self._session.begin(ReleaseDurable(UNNUMBERED, self.name))
        if self._releasing is None:
            return
        try:
            await self._session.wait(self._releasing, limit=limit)
        except SessionEnded:
            if not was_closed:
                raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except GatewayError:
            # What took the subscription or the session away is known by now, or tells itself by the next request.
            self._stream.close()


async def flush(streams: Iterable[DurableStream], seconds: float | None) -> None:
    """Have the grid told what was read of some streams before their session closes, as far as that can be in time."""
    with contextlib.suppress(GatewayError, TimeoutError):
        async with asyncio.timeout(seconds):
            for each in list(streams):
                await each.flush()
