"""The end of a link that was dialled: tells its cluster's interest, and takes the events that come."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Final

from gateway.app.context import Context
from gateway.app.journal.zone_events import IN, ZoneGapFound
from gateway.app.journal.zone_traffic import CountedLink
from gateway.app.zone_links.greeting import NotLinked
from gateway.app.zone_links.judging import Judge
from gateway.app.zone_links.knowledge import Knowledge
from gateway.app.zone_links.leaving import EVENT_BYTES
from gateway.app.zone_links.talk import GRID_RETRY, Talk
from gateway.app.zone_links.together import together
from gateway.app.zone_links.views import ZoneLinkView
from gateway.catalogue import zone_link_metrics as catalogue
from gateway.core.zones.interest import InterestTeller
from gateway.core.zones.protocol import (
    BATCH_EVENTS,
    Events,
    EventsAck,
    Gap,
    InterestAll,
    InterestAsk,
    SentEvent,
    ValuesAsk,
    ZoneRefusal,
)
from gateway.core.zones.routes import Crossing
from gateway.ports import ForwardedEvent, GridRefused, GridUnavailable, NotTaken, Taken, TakeResult
from gateway.ports.zone_links import ZoneConnection, ZoneLinkLimits

GATHER_SECONDS: Final = 0.1
"""For which changes of interest gather before they are told."""

DIGEST_SECONDS: Final = 30.0
"""Between two digests of the interest, by which the sender finds out whether it has missed something."""

INBOX_BYTES: Final = 4 * 1024 * 1024
"""Bytes of events that have come and are not in the grid; above, nothing more is read from the link."""

INBOX_MESSAGES: Final = 200
"""Messages, likewise."""

JUDGED_BYTES: Final = 64 * 1024
"""Bytes of values after which others get their turn, if the sender has not caused too much work: to parse them takes
some milliseconds at worst."""

TOLD_WORK: Final = 2e-6
"""Seconds of CPU for each selector that is told once more because the sender asks for it."""

_REASONS: Final = {
    NotTaken.DUPLICATE: "duplicate",
    NotTaken.OLDER: "older",
    NotTaken.TOPICS: "not_created",
    NotTaken.ORIGINS: "not_created",
    NotTaken.BYTES: "not_stored",
}
"""Labels of the metric, by answers of the grid."""


class Receiver:
    """Serves one link until it breaks.

    Args:
        context: of the node.
        knowledge: of zones.
        connection: greeted.
        judge: says what may be taken of its source.
        limits: of links.

    Attributes:
        source: who sends.
        counted: the link, as the journal counts it.
        taken: events that are in the grid.
        repeated: events that had come another way, or were older than what is here.
        since: when it began, in seconds since 1970.
    """

    def __init__(
        self,
        context: Context,
        knowledge: Knowledge,
        connection: ZoneConnection,
        judge: Judge,
        limits: ZoneLinkLimits,
    ) -> None:
        self.source = judge.source
        self.counted = CountedLink(judge.source.link, judge.source.label, IN)
        self.taken = 0
        self.repeated = 0
        self.since = context.clock.wall()
        self.talk = Talk(context, knowledge, connection, judge.source.crossing, limits)
        self._context = context
        self._knowledge = knowledge
        self._judge = judge
        self._traffic = context.journal.zones
        self._inbox: deque[tuple[Events, int]] = deque()
        """What has come and is not taken yet, each with its bytes."""
        self._inbox_bytes = 0
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._changed = asyncio.Event()
        self._teller = InterestTeller()
        self._acknowledged = 0
        self._ended: asyncio.Future[NotLinked] = asyncio.get_running_loop().create_future()

    @property
    def selectors(self) -> int:
        """Selectors that the sender was told."""
        return len(self._teller.selectors)

    def end(self, error: NotLinked) -> None:
        """Hang up, for a reason."""
        if not self._ended.done():
            self._ended.set_result(error)

    def view(self) -> ZoneLinkView:
        """Describe it."""
        source = self.source
        return ZoneLinkView(
            link=source.link,
            remote=source.cluster,
            label=source.label,
            direction=IN,
            kind=source.crossing.value,
            up=True,
            since=self.since,
            events=self.taken,
            bytes=self.talk.connection.bytes_in + self.talk.connection.bytes_out,
            repeated=self.repeated,
            selectors=self.selectors,
            clock_difference=self.talk.clock_difference,
        )

    async def run(self) -> None:
        """Serve it.

        Raises:
            NotLinked, ZoneLinkBroken: why it is over.
        """
        self._knowledge.watch(self._changed.set)
        try:
            await together(
                *(self._hear(), self._take(), self._tell(), self._end(), self.talk.beat(), self.talk.notice_silence())
            )
        finally:
            self._knowledge.unwatch(self._changed.set)
            self.talk.count()

    async def _end(self) -> None:
        raise await self._ended

    # --- Interest -----------------------------------------------------------------------------------------------------

    async def _tell(self) -> None:
        """Tell members and interest, whole at first and then what changes."""
        await self.talk.tell_members()
        if self.source.is_meeting:
            raise NotLinked(ZoneRefusal.STOPPED, "nothing more is to be told")
        await self._tell_all()
        told, losses = self._context.clock.monotonic(), self._knowledge.losses
        while True:
            wait = max(0.0, told + DIGEST_SECONDS - self._context.clock.monotonic())
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                await self._tell_digest()
                told = self._context.clock.monotonic()
                continue
            await asyncio.sleep(GATHER_SECONDS)
            self._changed.clear()
            await self.talk.tell_members()
            self.talk.check_zone()
            self._check_source()
            await self._tell_change()
            if losses != self._knowledge.losses:
                losses = self._knowledge.losses
                await self.talk.say(ValuesAsk())

    def _check_source(self) -> None:
        """Make sure that the sender may still send: it may have left the zone, or the join may be gone."""
        table, source = self._knowledge.table, self.source
        if source.crossing is Crossing.JOIN:
            named = source.link.removeprefix("from:join:").rpartition("/")[0]
            if named not in table.joins:
                raise NotLinked(ZoneRefusal.ZONE, "the join is gone")
        elif not any(each.cluster == source.cluster for each in self._knowledge.others):
            raise NotLinked(ZoneRefusal.LEFT, f"{source.cluster} has left the zone")

    async def _tell_all(self) -> None:
        if self.source.crossing is Crossing.JOIN:
            return
        self._teller.change(self._knowledge.interest)
        selectors = tuple(sorted(each.text for each in self._teller.selectors))
        await self.talk.say(InterestAll(self._teller.revision, selectors))

    async def _tell_change(self) -> None:
        if self.source.crossing is Crossing.JOIN:
            return
        change = self._teller.change(self._knowledge.interest)
        if change is not None:
            await self.talk.say(change)

    async def _tell_digest(self) -> None:
        if self.source.crossing is not Crossing.JOIN:
            await self.talk.say(self._teller.digest())

    # --- Events -------------------------------------------------------------------------------------------------------

    async def _hear(self) -> None:
        while True:
            await self._room.wait()
            message = await self.talk.hear()
            match message:
                case Events():
                    self._put(message)
                case InterestAsk():
                    await self.talk.pace(TOLD_WORK * self.selectors)
                    await self._tell_all()
                case Gap():
                    self._context.announce(ZoneGapFound(self.counted, message.partition))
                case _:
                    raise NotLinked(ZoneRefusal.PROTOCOL, f"a sender does not say {type(message).__name__}")

    def _put(self, message: Events) -> None:
        held = _held(message)
        self._inbox.append((message, held))
        self._inbox_bytes += held
        self._filled.set()
        if self._inbox_bytes > INBOX_BYTES or len(self._inbox) >= INBOX_MESSAGES:
            self._room.clear()

    async def _take(self) -> None:
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._inbox:
                messages = self._next_messages()
                await self._apply([one for each in messages for one in await self._judged(each)])
                self._acknowledged += len(messages)
                await self.talk.say(EventsAck(self._acknowledged))

    def _next_messages(self) -> list[Events]:
        """Take messages from the inbox, about as much as the grid takes in one step."""
        messages: list[Events] = []
        count = 0
        while self._inbox and (not messages or count + len(self._inbox[0][0].events) <= BATCH_EVENTS):
            message, held = self._inbox.popleft()
            messages.append(message)
            count += len(message.events)
            self._inbox_bytes -= held
        self._room.set()
        return messages

    async def _judged(self, message: Events) -> list[ForwardedEvent]:
        self._context.metrics.add(catalogue.ZONE_EVENTS, len(message.events), label="in")
        judged: list[ForwardedEvent] = []
        for part in _parts(message.events):
            await self.talk.pace(self._judge.work(part))
            judged += self._judge.judge(part, current=message.current)
        if self._traffic is not None:
            tally = self._traffic.of(self.counted)
            tally.events += len(message.events)
            tally.bytes += sum(len(each.value) for each in message.events)
            tally.refused += len(message.events) - len(judged)
        return judged

    async def _apply(self, forwarded: list[ForwardedEvent]) -> None:
        """Have events taken; as long as the grid does not, nothing is acknowledged, and the sender waits."""
        while forwarded:
            try:
                results = await self._context.grid.origins.apply(forwarded, cluster=self._knowledge.cluster)
            except GridUnavailable:
                await asyncio.sleep(GRID_RETRY)
                continue
            self._count(results)
            if NotTaken.STALE in results:
                raise NotLinked(ZoneRefusal.STALE, f"another node of {self.source.cluster} sends by now")
            refused = next((place for place, each in enumerate(results) if isinstance(each, GridRefused)), None)
            if refused is None:
                return
            # From the first one on, as those behind it may be of the same topic; repeated, they do no harm.
            forwarded = forwarded[refused:]
            await asyncio.sleep(GRID_RETRY)

    def _count(self, results: list[TakeResult]) -> None:
        taken = sum(isinstance(each, Taken) for each in results)
        reasons = Counter(_REASONS[each] for each in results if isinstance(each, NotTaken) and each in _REASONS)
        repeated = reasons["duplicate"] + reasons["older"]
        self.taken += taken
        self.repeated += repeated
        if self._traffic is not None:
            tally = self._traffic.of(self.counted)
            tally.taken += taken
            tally.repeated += repeated
            tally.refused += reasons["not_created"] + reasons["not_stored"]
        for reason, count in reasons.items():
            self._context.metrics.add(catalogue.ZONE_NOT_APPLIED, count, label=reason)


def _held(message: Events) -> int:
    """Tell about how many bytes of memory events take."""
    return sum(EVENT_BYTES + len(each.topic) + len(each.value) + sum(map(len, each.path)) for each in message.events)


def _parts(events: Sequence[SentEvent]) -> Iterator[Sequence[SentEvent]]:
    """Part events, in order, so that not much is parsed at once."""
    begin = size = 0
    for at, each in enumerate(events):
        if size and size + len(each.value) > JUDGED_BYTES:
            yield events[begin:at]
            begin, size = at, 0
        size += len(each.value)
    yield events[begin:]
