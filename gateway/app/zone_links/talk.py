"""What both ends of a link do: messages out and in, beats, and what is told of members."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from gateway.app.context import Context
from gateway.app.zone_links.greeting import NotLinked
from gateway.app.zone_links.knowledge import Knowledge
from gateway.catalogue import zone_link_metrics as catalogue
from gateway.core.pacing.rates import TokenBucket
from gateway.core.zones.messages import decode, encode
from gateway.core.zones.protocol import (
    Beat,
    Members,
    Purpose,
    Refuse,
    ZoneMessage,
    ZoneProtocolError,
    ZoneRefusal,
)
from gateway.core.zones.records import Member
from gateway.core.zones.routes import ClusterId, Crossing
from gateway.core.zones.work import message_work
from gateway.ports import GridUnavailable, TooManyRecords
from gateway.ports.zone_links import ZoneConnection, ZoneLinkBroken, ZoneLinkLimits

BEAT_SECONDS: Final = 1.0
"""After which something is said in any case: a fifth of the silence after which a link counts as broken."""

LATE_BEATS: Final = 2
"""Beats by which this node may notice late that time has passed. Then it slept itself, and the other end is not blamed
for what was not heard meanwhile."""

MEMBERS_AT_ONCE: Final = 8
"""Members in one message: some 30 kB if each of them has all the URLs and certificates that it may, and half of what a
message may have if these are the longest."""

WORK_RATE: Final = 0.2
WORK_BURST: Final = 0.1
"""Seconds of CPU that a link may cause in a second, and at once, by what it says; then it is read more slowly."""

TURN_WORK: Final = 0.002
"""Seconds of CPU after which others get their turn."""

MILLISECONDS: Final = 1_000

GRID_RETRY: Final = 0.2
"""Seconds after which something is tried again that the grid did not do."""


class Talk:
    """One end of a link, after the greeting.

    Args:
        context: of the node.
        knowledge: of zones.
        connection: to the other end.
        crossing: over which kind of link events cross.
        limits: of links.

    Attributes:
        clock_difference: seconds by which the clock of the other end is ahead of this one's, less the time under way.
    """

    def __init__(
        self,
        context: Context,
        knowledge: Knowledge,
        connection: ZoneConnection,
        crossing: Crossing,
        limits: ZoneLinkLimits,
    ) -> None:
        self.connection = connection
        self.clock_difference = 0.0
        self._context = context
        self._clock = context.clock
        self._knowledge = knowledge
        self._crossing = crossing
        self._silence = limits.silence
        self._said = self._clock.monotonic()
        self._members: dict[ClusterId, Member] = {}
        self._counted_in = self._counted_out = 0
        self._zone = knowledge.table.zone
        self._work = TokenBucket(WORK_RATE, WORK_BURST)
        self._worked = 0.0

    async def say(self, message: ZoneMessage) -> None:
        """Send a message.

        Raises:
            ZoneLinkBroken: see there.
        """
        await self.say_encoded(encode(message))

    async def say_encoded(self, data: bytes) -> None:
        """Send a message in bytes.

        Raises:
            ZoneLinkBroken: see there.
        """
        await self.connection.send(data)
        self._said = self._clock.monotonic()
        self.count()

    async def hear(self) -> ZoneMessage:
        """Return the next message, but beats.

        Raises:
            NotLinked: the other end refuses to go on, or breaks the protocol.
            ZoneLinkBroken: see there.
        """
        while True:
            data = await self.connection.receive()
            try:
                message = decode(data)
            except ZoneProtocolError as error:
                raise NotLinked.over(error) from None
            self.count()
            await self.pace(message_work(data, message))
            match message:
                case Beat():
                    self.clock_difference = message.time / MILLISECONDS - self._clock.wall()
                case Refuse():
                    raise NotLinked.by(message)
                case Members():
                    await self._learn(message.members)
                case _:
                    return message

    async def pace(self, work: float) -> None:
        """Charge the other end for work of its making, and wait as long as it has to; others get their turn.

        Args:
            work: seconds of CPU that it takes, or has taken.
        """
        wait = self._work.charge(self._clock.monotonic(), work)
        self._worked += work
        if wait or self._worked > TURN_WORK:
            self._worked = 0.0
            await asyncio.sleep(wait)

    async def beat(self) -> None:
        """Say something now and then, for ever.

        Raises:
            ZoneLinkBroken: see there.
        """
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            if self._clock.monotonic() - self._said >= BEAT_SECONDS:
                await self.say(Beat(int(self._clock.wall() * MILLISECONDS)))

    async def notice_silence(self) -> None:
        """Notice if the other end says nothing; also while nothing can be said to it, as the connection is full.

        Raises:
            ZoneLinkBroken: it is silent for too long.
        """
        before = self._clock.monotonic()
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            now = self._clock.monotonic()
            slept, before = now - before > LATE_BEATS * BEAT_SECONDS, now
            if not slept and self.connection.silence > self._silence:
                raise ZoneLinkBroken(f"nothing was heard for {self.connection.silence:.1f} s")

    async def tell_members(self) -> None:
        """Tell what is new of members; of the zone that the link is of, and only over links within it."""
        zone = self._zone
        if zone is None or self._crossing is Crossing.JOIN:
            return
        known = {each.cluster: each for (uid, _), each in self._knowledge.table.members.items() if uid == zone.uid}
        news = [each for cluster, each in known.items() if self._members.get(cluster) != each]
        self._members = known
        for start in range(0, len(news), MEMBERS_AT_ONCE):
            await self.say(Members(tuple(news[start : start + MEMBERS_AT_ONCE])))

    def check_zone(self, purpose: Purpose = Purpose.MEMBER) -> None:
        """Make sure that this cluster is in the zone still for which the link was made.

        Raises:
            NotLinked: it has left.
        """
        zone = self._knowledge.table.zone
        if purpose is Purpose.JOIN or self._crossing is Crossing.JOIN or self._zone is None:
            return
        if zone is None or zone.uid != self._zone.uid:
            raise NotLinked(ZoneRefusal.STOPPED, f"{self._knowledge.cluster} has left the zone")

    async def refuse(self, error: NotLinked) -> None:
        """Tell the other end why there is no link any more, unless it said so itself, and hang up."""
        await self.connection.close(b"" if error.told else encode(Refuse(error.why, str(error))))

    def count(self) -> None:
        """Bring the metrics of bytes up to date."""
        metrics, connection = self._context.metrics, self.connection
        metrics.add(catalogue.ZONE_BYTES, connection.bytes_in - self._counted_in, label="in")
        metrics.add(catalogue.ZONE_BYTES, connection.bytes_out - self._counted_out, label="out")
        self._counted_in, self._counted_out = connection.bytes_in, connection.bytes_out

    async def _learn(self, told: Iterable[Member]) -> None:
        zone = self._zone
        if zone is None or self._crossing is Crossing.JOIN:
            raise NotLinked(ZoneRefusal.PROTOCOL, "members were told over a link that is of no zone")
        members = [each for each in told if each.zone == zone.uid]
        for each in members:
            # What it knows need not be told to it.
            self._members[each.cluster] = each
        while True:
            try:
                await self._context.grid.zones.merge(members, own=self._knowledge.cluster)
            except TooManyRecords as error:
                raise NotLinked(ZoneRefusal.LIMIT, str(error)) from None
            except GridUnavailable:
                # The other end will not tell it again, and without the grid nothing else can be done here, either.
                await asyncio.sleep(GRID_RETRY)
            else:
                return
