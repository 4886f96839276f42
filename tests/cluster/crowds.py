"""Crowds of sessions that are watched, and publishers that count.

Every publisher counts 1, 2, 3, … on topics of its own, which makes every loss, repetition and reordering visible;
``gateway.local.checker`` says how.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from gateway.client import Receipt, Recovery, Session, UpdateStream, connect
from gateway.core.client.promises import users
from gateway.core.topics.versions import GENERATION_SHIFT
from gateway.local.checker import Tally, TopicWatch, Violation
from gateway.local.stack import Stack
from tests.cluster.grid_reader import GridReader, LogEntry
from tests.support.faults import eventually

CONNECTING: Final = 30
"""Clients of a crowd that open their sessions at the same time: two busy cores cannot serve more at once anyway."""

LINK_WARNINGS: Final = frozenset({"link_down", "link_failed", "node_suspected"})
"""What nodes log of a node that does not answer any more over its link."""

Figures = Callable[[str], None]
"""The fixture ``figures``: what it is told is shown at the end of the run, so that it can be quoted."""


def percentile(seconds: Sequence[float], share: float) -> float:
    """Return what a share of some values does not exceed; there is at least one."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# --- Clients ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Identity:
    """What must not change in a session's life, as its client sees it."""

    id: str
    principal: str
    properties: Mapping[str, str]


class Member:
    """A session of which every update and every recovery is watched.

    Args:
        name: for violations.
        session: just opened.

    Attributes:
        watches: what was seen, by topic.
        recoveries: all there were.
        welcomed: when it was last welcomed, on the monotonic clock.
        notices: all there were.
    """

    def __init__(self, name: str, session: Session) -> None:
        self.name = name
        self.session = session
        self.watches: dict[str, TopicWatch] = {}
        self.recoveries: list[Recovery] = []
        self.welcomed = time.monotonic()
        self.notices: list[str] = []
        self._tasks = [asyncio.create_task(self._hear_recoveries()), asyncio.create_task(self._hear_notices())]

    @property
    def identity(self) -> Identity:
        """What must not change."""
        return Identity(self.session.id, self.session.principal, users(self.session.properties))

    @property
    def violations(self) -> list[Violation]:
        """What was wrong with the updates."""
        return [violation for watch in self.watches.values() for violation in watch.violations]

    @property
    def tally(self) -> Tally:
        """Counts of the updates of all topics."""
        return sum((watch.tally for watch in self.watches.values()), Tally())

    async def subscribe(self, selector: str) -> None:
        """Subscribe and watch; the selectors of one member must not overlap."""
        self._tasks.append(asyncio.create_task(self._watch(await self.session.subscribe(selector))))

    def last(self) -> dict[str, tuple[int, int]]:
        """Tell the last value and version of every topic it has ever been sent."""
        return {topic: (watch.value, watch.version) for topic, watch in self.watches.items()}

    async def close(self) -> None:
        """Close the session; fails if anything went wrong with it meanwhile."""
        await self.session.close()
        await asyncio.gather(*self._tasks)

    async def _watch(self, stream: UpdateStream) -> None:
        async for update in stream:
            watch = self.watches.get(update.topic)
            if watch is None:
                watch = self.watches[update.topic] = TopicWatch(self.name, update.topic)
            assert type(update.value) is int
            watch.observe(update.value, update.version, snapshot=update.snapshot, folded=update.folded)

    async def _hear_recoveries(self) -> None:
        async for recovery in self.session.recoveries():
            self.recoveries.append(recovery)
            self.welcomed = time.monotonic()

    async def _hear_notices(self) -> None:
        async for notice in self.session.notices():
            self.notices.append(notice.code)


Enter = Callable[[Member, int], Awaitable[None]]
"""Makes a new member of a crowd, of which the number is given from 0, what the test wants."""


@asynccontextmanager
async def crowd(url: str, count: int, enter: Enter | None = None, *, role: str = "user") -> AsyncIterator[list[Member]]:
    """Open sessions, and close all of them at the end.

    Args:
        url: where.
        count: how many.
        enter: called for each once it is open.
        role: the principals are called ``<role>-<number>``.
    """
    members: list[Member] = []
    turn = asyncio.Semaphore(CONNECTING)

    async def open_one(number: int) -> None:
        async with turn:
            name = f"{role}-{number}"
            member = Member(name, await connect(url, principal=name, properties={"seat": str(number)}))
            members.append(member)
            if enter is not None:
                await enter(member, number)

    try:
        async with asyncio.TaskGroup() as opening:
            for number in range(count):
                opening.create_task(open_one(number))
        members.sort(key=lambda member: int(member.session.properties["seat"]))
        yield members
    finally:
        ends = await asyncio.gather(*(member.close() for member in members), return_exceptions=True)
        if failures := [end for end in ends if isinstance(end, BaseException)]:
            raise BaseExceptionGroup(f"{len(failures)} of {len(members)} members met an error", failures)


def hold_the_same(seen: Mapping[str, tuple[int, int]], stored: Mapping[str, tuple[int, int]]) -> bool:
    """Tell whether somebody has seen the values that are stored.

    Whoever has a value is not sent it again when its version rises with the generation of the grid, and who comes later
    is shown it with the floor of the generation: then it is the value that tells.
    """
    return seen.keys() == stored.keys() and all(
        value == stored[topic][0]
        and (version == stored[topic][1] or version >> GENERATION_SHIFT != stored[topic][1] >> GENERATION_SHIFT)
        for topic, (value, version) in seen.items()
    )


async def converged(members: Iterable[Member], grid: GridReader, expected: Callable[[Member], set[str]]) -> None:
    """Wait until every member has seen exactly the topics that it should, and of each the value that the grid holds.

    Nothing may be published meanwhile.
    """
    values = await grid.values()
    wanted = {member: {topic: values[topic] for topic in expected(member)} for member in members}

    def behind() -> list[str]:
        return [member.name for member, last in wanted.items() if not hold_the_same(member.last(), last)]

    try:
        await eventually(lambda: not behind(), "everybody holds the grid's values")
    except AssertionError:
        first = next(member for member in wanted if not hold_the_same(member.last(), wanted[member]))
        differing = {
            topic: (first.last().get(topic), wanted[first].get(topic))
            for topic in first.last().keys() | wanted[first].keys()
            if first.last().get(topic) != wanted[first].get(topic)
        }
        raise AssertionError(
            f"{len(behind())} of {len(wanted)} do not hold the grid's values; {first.name} at {first.session.node}, "
            f"{first.session.state}, {len(first.recoveries)} recoveries, (has, grid) by topic: {differing}"
        ) from None


def complaints(stack: Stack) -> Counter[str]:
    """Count what nodes have logged as warnings and errors, by event; what is no event counts as itself."""
    found: Counter[str] = Counter()
    for node in stack.node_names:
        for line in stack.log_of(node).read_text().splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                found[line] += 1
            else:
                if event["level"] in {"warning", "error"}:
                    found[event["event"]] += 1
    # The stack's nodes believe every client, let them do everything, and say so.
    del found["development_mode"], found["policy_absent"]
    return found


def complaints_after_kills(stack: Stack) -> Counter[str]:
    """Count the same where nodes were killed: that links to them are down, and cannot be opened, is left out."""
    found = complaints(stack)
    for each in LINK_WARNINGS:
        del found[each]
    return found


# --- Publishers -------------------------------------------------------------------------------------------------------


@dataclass
class Counting:
    """Publishes 1, 2, 3, … on a topic that nobody else publishes to.

    Attributes:
        session: that publishes.
        topic: where.
        asked: the last value that was published.
        receipts: by value.
        slowest: the longest wait for a receipt, in seconds.
    """

    session: Session
    topic: str
    asked: int = 0
    receipts: dict[int, Receipt] = field(default_factory=dict)
    slowest: float = 0.0

    async def publish(self) -> None:
        """Publish the next value and wait for its receipt."""
        self.asked += 1
        value = self.asked
        loop = asyncio.get_running_loop()
        started = loop.time()
        self.receipts[value] = await self.session.publish(self.topic, value)
        self.slowest = max(self.slowest, loop.time() - started)

    async def pour(self, upto: int, *, in_flight: int) -> None:
        """Publish up to a value, without waiting for the receipts of more than some."""
        room = asyncio.Semaphore(in_flight)

        async def one() -> None:
            try:
                await self.publish()
            finally:
                room.release()

        async with asyncio.TaskGroup() as publishes:
            for _ in range(upto - self.asked):
                await room.acquire()
                publishes.create_task(one())

    def judge(self, log: Sequence[LogEntry]) -> None:
        """Check that the log holds every value exactly once, in order, each as its receipt says (P5)."""
        times = Counter(entry.value for entry in log)
        every = range(1, self.asked + 1)
        missing = [value for value in every if value not in times]
        repeated = [value for value, count in times.items() if count > 1]
        assert not missing, f"{self.topic}: {len(missing)} of {self.asked} missing, first {missing[:5]}"
        assert not repeated, f"{self.topic}: {len(repeated)} of {self.asked} repeated, first {repeated[:5]}"
        disorder = [after.value for before, after in pairwise(log) if after.value != before.value + 1]
        assert not disorder, f"{self.topic}: out of order at {disorder[:5]}"
        assert len(log) == self.asked, f"{self.topic}: holds values that nobody published"
        unlike = [
            (entry, self.receipts.get(entry.value))
            for entry in log
            if self.receipts.get(entry.value) != Receipt(entry.event, entry.version)
        ]
        assert not unlike, f"{self.topic}: {len(unlike)} receipts are not of the entry, first {unlike[0]}"


def gaps(recoveries: Iterable[Recovery]) -> str:
    """Describe how long sessions were without a connection."""
    seconds = sorted(recovery.gap_seconds for recovery in recoveries)
    return f"p50 {statistics.median(seconds):.3f} s, max {seconds[-1]:.3f} s"
