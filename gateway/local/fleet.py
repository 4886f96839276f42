"""The clients of the demonstration: publishers that count, subscribers that watch, and what each of them was told.

They use the ordinary client and nothing else, so what they see is what an application sees.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Final, TypeAlias

from gateway.client import Session, UpdateStream, connect
from gateway.local.checker import PublishLedger, RecoverySeen, SessionFacts, TopicWatch, Violation
from gateway.local.processes import POLL_SECONDS

TOPICS: Final = ("prices/ACME", "prices/INIT", "orders/east", "orders/west", "sensors/roof", "sensors/yard")
"""One publisher each; three roots, which are three partitions of the grid."""
_WILDCARDS: Final = ("prices/**", "orders/*", "sensors/**")
_CLOSE_SECONDS: Final = 10.0
"""How long the sessions may take to close, all at once."""

Watches: TypeAlias = dict[tuple[str, str], TopicWatch]
"""What subscribers see, by subscriber and topic."""


class Member:
    """A session and what became of it.

    Attributes:
        name: of the member, which is also its principal.
        session: its session.
        before: what the session was at the beginning.
        recoveries: what the client was told, in order.
        troubles: everything that an application would have had to handle; must stay empty.
        leaving: True once the member itself ends its session.
    """

    def __init__(self, name: str, session: Session) -> None:
        """Take a session that was just opened."""
        self.name = name
        self.session = session
        self.before = facts_of(session)
        self.recoveries: list[RecoverySeen] = []
        self.troubles: list[Violation] = []
        self.leaving = False
        self._tasks: list[asyncio.Task[None]] = []
        self._spawn(self._follow_recoveries())

    @property
    def after(self) -> SessionFacts | None:
        """What the session is now; None if it has ended."""
        return None if self.session.state == "closed" else facts_of(self.session)

    async def close(self) -> None:
        """End the session."""
        self.leaving = True
        await self.session.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(self._guard(work)))

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        """Whatever reaches the application of this member unasked is a broken promise."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - no error at all is the promise
            if not self.leaving:
                self.troubles.append(Violation("P7", f"{self.name}: {type(error).__name__}: {error}"))

    async def _follow_recoveries(self) -> None:
        async for recovery in self.session.recoveries():
            self.recoveries.append(
                RecoverySeen(
                    session=self.name,
                    outcome=str(recovery.outcome),
                    node=recovery.node,
                    gap_seconds=recovery.gap_seconds,
                    lost=recovery.lost,
                    replayed=recovery.replayed,
                )
            )


class Subscriber(Member):
    """Watches every topic, and judges each update as it comes."""

    def __init__(self, name: str, session: Session, watches: Watches) -> None:
        """Take a session; ``watches`` takes what it will see."""
        super().__init__(name, session)
        self._watches = watches

    async def subscribe(self, selectors: Sequence[str]) -> None:
        """Select topics and begin to watch.

        Raises:
            GatewayError: the session could not.
        """
        for selector in selectors:
            self._spawn(self._watch(await self.session.subscribe(selector)))

    async def _watch(self, stream: UpdateStream) -> None:
        async for update in stream:
            key = (self.name, update.topic)
            watch = self._watches.get(key)
            if watch is None:
                watch = self._watches[key] = TopicWatch(*key)
            if isinstance(update.value, int):
                watch.observe(update.value, update.version, snapshot=update.snapshot, folded=update.folded)
            else:
                self.troubles.append(Violation("P6", f"{self.name} on {update.topic}: the value is {update.value!r}"))


class Publisher(Member):
    """Counts 1, 2, 3, … on its topic, one publish after the other.

    Attributes:
        ledger: what the grid accepted.
        longest: the longest time one publish took since it was last set to 0, in seconds.
    """

    def __init__(self, name: str, session: Session, topic: str, interval: float) -> None:
        """Take a session and begin to publish on *topic* every *interval* seconds."""
        super().__init__(name, session)
        self.ledger = PublishLedger(topic)
        self.longest = 0.0
        self._interval = interval
        self._stopping = asyncio.Event()
        self._spawn(self._count())

    async def finish(self) -> None:
        """Stop after the publish under way, whose receipt is still waited for."""
        self._stopping.set()
        count = self._tasks[-1]
        await asyncio.wait([count])

    async def _count(self) -> None:
        while not self._stopping.is_set():
            value = self.ledger.accepted + 1
            began = time.monotonic()
            receipt = await self.session.publish(self.ledger.topic, value)
            took = time.monotonic() - began
            self.longest = max(self.longest, took)
            self.ledger.acknowledge(value, receipt.version, receipt.event_id)
            try:
                await asyncio.wait_for(self._stopping.wait(), max(0.0, self._interval - took))
            except TimeoutError:
                continue


class Fleet:
    """All members.

    Attributes:
        watches: what subscribers see.
        publishers: one per topic.
        subscribers: the others.
    """

    def __init__(self) -> None:
        """Begin with nobody."""
        self.watches: Watches = {}
        self.publishers: list[Publisher] = []
        self.subscribers: list[Subscriber] = []

    @property
    def members(self) -> list[Member]:
        """Everybody."""
        return [*self.publishers, *self.subscribers]

    async def board(self, urls: Sequence[str], *, subscribers: int, rate: float) -> None:
        """Open all sessions and let them work.

        Args:
            urls: where to connect; members take them in turn.
            subscribers: how many; every other one selects by wildcard, the rest topic by topic.
            rate: publishes per second and topic.

        Raises:
            ConnectFailed, RequestRefused: a session could not be opened, or not subscribe.
        """
        await asyncio.gather(
            *(
                self._add_subscriber(number, urls[number % len(urls)], _WILDCARDS if number % 2 else TOPICS)
                for number in range(1, subscribers + 1)
            )
        )
        for number, topic in enumerate(TOPICS, 1):
            name = f"publisher-{number}"
            session = await connect(urls[number % len(urls)], principal=name, properties={"role": "publisher"})
            self.publishers.append(Publisher(name, session, topic, 1 / rate))

    async def _add_subscriber(self, number: int, url: str, selectors: Sequence[str]) -> None:
        name = f"subscriber-{number}"
        session = await connect(url, principal=name, properties={"role": "subscriber", "number": str(number)})
        subscriber = Subscriber(name, session, self.watches)
        self.subscribers.append(subscriber)
        await subscriber.subscribe(selectors)

    def on_node(self, node: str) -> frozenset[str]:
        """Return the names of the members that *node* serves."""
        return frozenset(member.name for member in self.members if member.session.node == node)

    def busiest(self, nodes: Collection[str]) -> str:
        """Return the node that serves the most members; the first of equals."""
        return max(sorted(nodes), key=lambda node: len(self.on_node(node)))

    def recoveries(self) -> list[RecoverySeen]:
        """Return all recoveries so far, of everybody."""
        return [recovery for member in self.members for recovery in member.recoveries]

    def marks(self) -> dict[str, int]:
        """Note how many recoveries each member has had, for ``recoveries_since``."""
        return {member.name: len(member.recoveries) for member in self.members}

    def recoveries_since(self, marks: dict[str, int]) -> list[RecoverySeen]:
        """Return what happened since ``marks``."""
        return [recovery for member in self.members for recovery in member.recoveries[marks[member.name] :]]

    async def recovered(self, names: frozenset[str], marks: dict[str, int], *, timeout: float) -> bool:  # noqa: ASYNC109
        """Wait until each of *names* has recovered since ``marks``; False if that takes too long or a session ended."""

        def all_have() -> bool:
            return names <= {recovery.session for recovery in self.recoveries_since(marks)}

        await _until(lambda: all_have() or self._some_ended(), timeout)
        return all_have()

    async def current(self, *, timeout: float) -> bool:  # noqa: ASYNC109 - the deadline is part of the question
        """Wait until every topic was published once more from now and every subscriber has seen that; False if not."""
        goals = {publisher.ledger.topic: publisher.ledger.accepted + 1 for publisher in self.publishers}
        await _until(lambda: self._all_at(goals) or self._some_ended(), timeout)
        return self._all_at(goals)

    async def quiet(self, *, timeout: float) -> bool:  # noqa: ASYNC109 - the deadline is part of the question
        """Let publishers finish, and wait until every subscriber has seen the last value; False if not in time."""
        deadline = time.monotonic() + timeout
        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(publisher.finish() for publisher in self.publishers))
        except TimeoutError:
            return False
        goals = {publisher.ledger.topic: publisher.ledger.accepted for publisher in self.publishers}
        return await _until(lambda: self._all_at(goals), deadline - time.monotonic())

    def longest_publish(self) -> float:
        """Return the longest time that one publish took since the last call, in seconds."""
        longest = max(publisher.longest for publisher in self.publishers)
        for publisher in self.publishers:
            publisher.longest = 0.0
        return longest

    async def close(self) -> None:
        """End all sessions.

        Raises:
            TimeoutError: not all could be ended in time.
        """
        async with asyncio.timeout(_CLOSE_SECONDS):
            await asyncio.gather(*(member.close() for member in self.members))

    def _some_ended(self) -> bool:
        """Tell whether it makes no sense to wait for everybody."""
        return any(member.after is None for member in self.members)

    def _all_at(self, goals: dict[str, int]) -> bool:
        return all(
            (watch := self.watches.get((subscriber.name, topic))) is not None and watch.value >= goal
            for topic, goal in goals.items()
            for subscriber in self.subscribers
        )


def facts_of(session: Session) -> SessionFacts:
    """Note what must not change in a session's life."""
    own = {name: value for name, value in session.properties.items() if not name.startswith("$")}
    return SessionFacts(session.id, session.principal, own)


async def read_grid(url: str, *, timeout: float) -> dict[str, tuple[int, int]]:  # noqa: ASYNC109
    """Read the topics as somebody new does: value and version by topic.

    Args:
        url: of a node that has followed none of the topics, so that it has to read the grid.
        timeout: seconds for all of it; topics not received by then are missing in the answer.
    """
    found: dict[str, tuple[int, int]] = {}

    async def read(session: Session, topic: str) -> None:
        async for update in await session.subscribe(topic):
            if isinstance(update.value, int):
                found[topic] = (update.value, update.version)
            return

    async with await connect(url, principal="auditor") as session:
        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(read(session, topic) for topic in TOPICS))
        except TimeoutError:
            return found
    return found


async def _until(condition: Callable[[], bool], timeout: float) -> bool:  # noqa: ASYNC109 - the deadline is part of the question
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True
