"""What a session asks of durable subscriptions: a part of ``Session``."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal, overload
from weakref import WeakSet

from gateway.client.arguments import text_of
from gateway.client.consumers import DEFAULT_CREDIT, Ack, MessageConsumer
from gateway.client.durable_streams import DurableStream, durable_mode, durable_opening
from gateway.client.queues import QUEUE_BYTES, QUEUE_SIZE
from gateway.client.supervisor import Supervisor
from gateway.core.client.errors import GatewayError, InvalidPosition, InvalidSelector, RequestRefused
from gateway.core.client.log_reader import show_position
from gateway.core.client.request_table import UNNUMBERED
from gateway.core.topics.selectors import parse_selector
from gateway.core.wire.durable_packets import DurablePlace, ReleaseDurable, RemoveDurable
from gateway.core.wire.packets import EARLIEST

if TYPE_CHECKING:
    from gateway.client.history_streams import HistoryStream


class DurableCalls:
    """The methods of a session that are about durable subscriptions."""

    _supervisor: Supervisor
    _durables: WeakSet[DurableStream]

    if TYPE_CHECKING:

        async def subscribe(
            self,
            selector: str,
            *,
            start: str,
            on_gap: Literal["tell", "refuse"],
            queue_size: int,
            queue_bytes: int,
            timeout: float | None,  # noqa: ASYNC109 - public
        ) -> HistoryStream:
            """See ``Session``."""

    @overload
    async def subscribe_durable(
        self,
        name: str,
        selector: str,
        *,
        shared: Literal[False] = False,
        start: str = EARLIEST,
        ack: Ack | str = Ack.AUTO,
        expires: float | None = None,
        take: bool = False,
        on_gap: Literal["tell", "refuse"] = "tell",
        queue_size: int = QUEUE_SIZE,
        queue_bytes: int = QUEUE_BYTES,
        timeout: float | None = None,  # noqa: ASYNC109 - public
    ) -> DurableStream: ...

    @overload
    async def subscribe_durable(
        self,
        name: str,
        selector: str,
        *,
        shared: Literal[True],
        start: str = EARLIEST,
        ack: Ack | str = Ack.AUTO,
        credit: int = DEFAULT_CREDIT,
        expires: float | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - public
    ) -> MessageConsumer: ...

    async def subscribe_durable(
        self,
        name: str,
        selector: str,
        *,
        shared: bool = False,
        start: str = EARLIEST,
        ack: Ack | str = Ack.AUTO,
        credit: int = DEFAULT_CREDIT,
        expires: float | None = None,
        take: bool = False,
        on_gap: Literal["tell", "refuse"] = "tell",
        queue_size: int = QUEUE_SIZE,
        queue_bytes: int = QUEUE_BYTES,
        timeout: float | None = None,  # noqa: ASYNC109 - public
    ) -> DurableStream | MessageConsumer:
        """Read topics with history from where the sessions of the principal were done that did so by this name.

        One session at a time uses a durable subscription; it is taken over from one whose client is gone. If it is
        *shared*, any number of sessions do, and each event is given to one of them, as a message of a queue, until it
        is settled. Its headers say of which ``topic`` and ``event`` it is.

        Args:
            name: what the principal calls it.
            selector: which topics, as for ``subscribe``; the same each time. Those of a shared one are in one
                partition: they have the same first segment.
            shared: whether it is.
            start: where it begins if there is none of this name, as for ``subscribe``.
            ack: ``auto``, when the next update is asked for; ``client``, by ``DurableStream.acknowledge``. Of a shared
                one as for ``consume``.
            credit: of a shared one, as for ``consume``.
            expires: seconds after its last use when it is forgotten; None for a week.
            take: take it over also from a session whose client is there.
            on_gap: as for ``subscribe``, as the following ones.
            queue_size: likewise.
            queue_bytes: likewise.
            timeout: seconds; None for the session's default.

        Raises:
            DurableInUse: another session uses it, and is connected.
            ValueError: *ack* makes no sense here, or *expires* is no length of time.
            InvalidSelector, InvalidPosition, RequestRefused, RequestTimedOut, SessionEnded: as for ``subscribe``.
        """
        parsed = parse_selector(text_of("selector", selector, InvalidSelector))
        start = text_of("start", start, InvalidPosition)
        name = text_of("name", name, RequestRefused)
        mode = durable_mode(ack, shared=shared)
        ask = durable_opening(name, parsed.text, start, expires, take=take, shared=shared)
        release = ReleaseDurable(UNNUMBERED, name)
        limit = self._supervisor.limit(timeout)
        try:
            place = (await self._supervisor.request_durable(ask, timeout)).durable or DurablePlace()
        except RequestRefused:
            raise
        except BaseException:
            # It may be opened, and then nobody else could use it; one that is shared means nothing by this.
            self._supervisor.begin(release)
            raise
        if place.queue is not None:
            return await self._supervisor.consume(place.queue, credit, mode, timeout)
        begin = show_position(place.positions) or EARLIEST
        try:
            stream = await self.subscribe(
                parsed.text, start=begin, on_gap=on_gap, queue_size=queue_size, queue_bytes=queue_bytes, timeout=timeout
            )
        except BaseException as error:
            released = self._supervisor.begin(release)
            if isinstance(error, RequestRefused):
                with suppress(GatewayError):  # why there is no stream is told, and nothing else
                    await self._supervisor.wait(released, limit=limit)
            raise
        durable = DurableStream(self._supervisor, name, stream, mode, created=place.created)
        self._durables.add(durable)
        return durable

    async def unsubscribe_durable(self, name: str, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - public
        """Have a durable subscription of the principal forgotten; close its stream or consumer here first.

        Args:
            name: what the principal calls it.
            timeout: seconds; None for the session's default.

        Raises:
            NoSuchDurable, DurableInUse: there is none, or a session uses it.
            RequestRefused, RequestTimedOut, SessionEnded: as for ``publish``.
        """
        ask = RemoveDurable(UNNUMBERED, text_of("name", name, RequestRefused))
        await self._supervisor.request_durable(ask, timeout)
