"""Open, advance, release, remove: what clients ask of durable subscriptions (protocol 14).

A node keeps nothing of them. Which session uses one, and where it goes on, is in the grid; what is read is read as all
history is (ADR 0083). So no rung of the ladder has anything to do for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from gateway.app.context import Context
from gateway.app.delivery.history_pages import HistoryPages
from gateway.app.registry.durable_removal import DurableRemoval
from gateway.app.registry.fenced_store import FencedStore
from gateway.app.requests.messages import bounds_of
from gateway.app.requests.turns import SELECTOR_COST, STEPS_PER_PACKET, Turns
from gateway.app.security.authorisation import Authorisation
from gateway.app.session.session import Session
from gateway.catalogue import durable_metrics as catalogue
from gateway.core.destinations.limits import SECONDS_PER_DAY
from gateway.core.destinations.reserved import RESERVED_LIMITS, Source, shared_queue
from gateway.core.topics.selectors import Selector, parse_selector, partitions
from gateway.core.topics.topics import principal_partition, shown
from gateway.core.topics.work import Work
from gateway.core.types import EventId, SessionId, TopicPath
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.durable_packets import (
    AdvanceDurable,
    DurablePlace,
    OpenDurable,
    ReleaseDurable,
    RemoveDurable,
)
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import Reply
from gateway.ports import (
    Advance,
    Different,
    DurableName,
    DurableTerms,
    InUse,
    NotOpened,
    Opened,
    OpenResult,
)

NAME_BYTES: Final = 256
"""Longest name, in bytes of UTF-8: it is part of what the grid holds, and is listed for people."""

DEFAULT_LIFE: Final = 7 * SECONDS_PER_DAY
"""Seconds for which one outlives its last use unless the client says otherwise: a program that stood still for a week
is not coming back, or what it missed is not kept any more."""

LONGEST_LIFE: Final = 366 * SECONDS_PER_DAY
"""Most that a client may ask for, as of the delay of a message."""

GONE_WITHIN: Final = 0.5
"""Seconds within which the grid is told that a client has gone (``registry.sessions.LINGER``): a program that was
restarted at once finds its former session in use for so long."""

OPENINGS: Final = 4
"""Times that it is tried to take over from sessions without a client, should there be another one each time; likewise
to finish removals that others began."""

DurableAsk: TypeAlias = OpenDurable | AdvanceDurable | ReleaseDurable | RemoveDurable


def _nobody(_selector: Selector) -> None:
    """Nobody wants to be told."""


class DurableSubscriptions:
    """Does what clients ask of durable subscriptions.

    Args:
        context: of the node.
        store: where it is written.
        pages: where the streams of partitions are.
        authorisation: judges which topics.
        turns: bounds what is done in one turn of the loop.

    Attributes:
        on_open: called with the selector of each one that is opened here.
    """

    def __init__(
        self, context: Context, store: FencedStore, pages: HistoryPages, authorisation: Authorisation, turns: Turns
    ) -> None:
        self._grid = context.grid
        self._removal = DurableRemoval(context.grid.durables, context.grid.queues)
        self._limits = context.limits
        self._metrics = context.metrics
        self._store = store
        self._pages = pages
        self._authorisation = authorisation
        self._turns = turns
        self._depth = context.parameters.topic_depth
        self._bounds = bounds_of(RESERVED_LIMITS)
        self.on_open: Callable[[Selector], None] = _nobody

    async def execute(self, session: Session, request: DurableAsk) -> None:
        """Execute a request, and answer it.

        Raises:
            RequestRefused: it is not to be.
            Outdated, SessionLost: see ``fencing``.
            GridUnavailable: it may have been done; asking again does no harm.
            GridRefused: nothing was done.
        """
        if not self._store.replicated:
            raise RequestRefused("a node that does not replicate sessions has no durable subscriptions")
        if not 0 < len(request.name.encode()) <= NAME_BYTES or not request.name.isprintable():
            raise RequestRefused(
                f"the name of a durable subscription has 1 to {NAME_BYTES} bytes of UTF-8, all of them printable"
            )
        name = DurableName(session.principal, request.name)
        place = None
        match request:
            case OpenDurable():
                place = await self._open(session, name, request)
                self._metrics.add(catalogue.DURABLE_OPENED, label="created" if place.created else "taken_up")
            case AdvanceDurable():
                await self._advance(session, name, request)
            case ReleaseDurable():
                await self._store.release_durable(session, name)
            case RemoveDurable():
                await self._remove(session, name, request)
        session.reply(Reply(request=request.request, durable=place))

    async def _advance(self, session: Session, name: DurableName, request: AdvanceDurable) -> None:
        moved = await self._store.advance_durable(session, name, _text(request.positions))
        if moved is Advance.TAKEN:
            raise _in_use(name, "another session uses it now, or this one has released it")
        if moved is Advance.ABSENT:
            raise _absent(name)
        self._metrics.add(catalogue.DURABLE_ADVANCES)

    async def _remove(self, session: Session, name: DurableName, request: RemoveDurable) -> None:
        if not await self._removal.begin_and_remove_queue(name):
            raise _in_use(name, "somebody consumes from it")
        removed = await self._grid.durables.remove(name, by=session.id)
        if isinstance(removed, InUse):
            raise _in_use(name, "another session uses it")
        if not removed and not request.resubmitted:
            raise _absent(name)

    async def _open(self, session: Session, name: DurableName, request: OpenDurable) -> DurablePlace:
        selector = parse_selector(request.selector)
        life = DEFAULT_LIFE if request.life is None else request.life
        if not 0 < life <= LONGEST_LIFE:
            raise RequestRefused("the life of a durable subscription is above 0 seconds, and a year at most")
        judging = Work()
        try:
            await self._turns.turn(SELECTOR_COST * len(selector.text), session.principal)
            self._authorisation.check_select(session, selector, judging)
        finally:
            self._limits.charge_work(session, judging.taken // STEPS_PER_PACKET)
        if request.shared and len(partitions(selector, self._depth)) > 1:
            raise RequestRefused(
                "the topics of a shared subscription are in one partition: its selector begins with what decides that, "
                f"the first {self._depth} segment(s)",
                code=ErrorCode.BAD_SELECTOR,
            )
        await self._prepare(session, principal_partition(name.principal))
        terms = DurableTerms(selector.text, life, request.shared)
        result = await self._take_up(session, name, terms, None, take=request.take)
        for _ in range(OPENINGS):
            if result is NotOpened.REMOVING:
                # Nobody opens what is half removed: it is there as a whole after this, or gone.
                await self._removal.finish(name)
                result = await self._take_up(session, name, terms, None, take=request.take)
            elif result is NotOpened.ABSENT:
                # Where one begins that is made is asked for only then.
                start = await self._start(selector, request)
                result = await self._take_up(session, name, terms, start, take=request.take)
        match result:
            case Opened(position, created):
                self.on_open(selector)
                places = {int(each.partition("-")[0]): EventId(each) for each in position.split(",") if each}
                queue = await self._declare(name, selector, position) if request.shared else None
                return DurablePlace(positions=places, created=created, queue=queue)
            case InUse():
                raise _in_use(name, "another session uses it")
            case Different(other):
                raise RequestRefused(
                    f"the durable subscription {shown(name.name)} is for {shown(other)}, and "
                    f"{'not ' if request.shared == (other == selector.text) else ''}shared",
                    code=ErrorCode.DURABLE_DIFFERS,
                )
            case NotOpened.REMOVING:
                raise _in_use(name, "it is being removed; ask again")
            case _:
                raise RequestRefused(
                    "the principal, or the grid, has as many durable subscriptions as it may",
                    code=ErrorCode.TOO_MANY_DURABLES,
                )

    async def _take_up(
        self, session: Session, name: DurableName, terms: DurableTerms, start: str | None, *, take: bool
    ) -> OpenResult:
        """Open one; from a session whose client is gone, or from any if the client wants that, it is taken."""
        result = await self._store.open_durable(session, name, terms, start, None)
        for _ in range(OPENINGS):
            if not isinstance(result, InUse) or not (take or await self._is_without_client(result.session)):
                break
            result = await self._store.open_durable(session, name, terms, start, result.session)
        return result

    async def _is_without_client(self, user: SessionId) -> bool:
        for pause in (GONE_WITHIN, 0.0):
            record = await self._grid.sessions.find(user)
            if record is None or not record.connected:
                return True
            await asyncio.sleep(pause)
        return False

    async def _start(self, selector: Selector, request: OpenDurable) -> str:
        if request.earliest:
            return _text(request.after)
        page = await self._pages.find(selector, request.after, earliest=False, limit=0)
        return _text(page.positions)

    async def _declare(self, name: DurableName, selector: Selector, position: str) -> TopicPath:
        """Make the queue of a shared subscription, unless it is there."""
        queue, source = shared_queue(*name), Source(*name, selector.text)
        if not await self._grid.queues.declare(queue, self._bounds, source=source.text(), fed=position):
            raise RequestRefused(
                "there are as many queues as there may be in its partition", code=ErrorCode.TOO_MANY_DURABLES
            )
        return queue

    async def _prepare(self, session: Session, partition: int) -> None:
        """Write ahead that the session leaves something in the partition of its principal (P7)."""
        if not self._store.is_ready(session, {partition}):
            if partition not in session.publish_partitions:
                self._limits.check_receipts(session, len(session.publish_partitions) + 1)
            try:
                await self._store.prepare(session, {partition})
            finally:
                self._limits.recount(session)


def _text(positions: Mapping[int, EventId]) -> str:
    """Write positions as ``Durable.position`` has them."""
    return ",".join(positions[number] for number in sorted(positions))


def _in_use(name: DurableName, why: str) -> RequestRefused:
    return RequestRefused(f"the durable subscription {shown(name.name)}: {why}", code=ErrorCode.DURABLE_IN_USE)


def _absent(name: DurableName) -> RequestRefused:
    return RequestRefused(
        f"{shown(name.principal)} has no durable subscription {shown(name.name)}", code=ErrorCode.NO_SUCH_DURABLE
    )
