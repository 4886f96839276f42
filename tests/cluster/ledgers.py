"""A market in which every update counts: who publishes, who writes down what comes, and how the two are compared."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from gateway.client import UpdateStream
from tests.cluster.crowds import Counting, Member
from tests.support.faults import eventually

TOPICS: Final = (*(f"prices/{number}" for number in range(10)), *(f"orders-{number}/all" for number in range(10)))
"""Half of them in one topic partition, half in others, so that there is one stretch to catch up, and several."""
PACE: Final = 0.05
"""Seconds between two publishes to a topic: 400 updates a second."""
ROUNDS: Final = 20
"""Publishes to each topic before and after each fault, at least."""
SHOWN: Final = 10
"""Numbers that a difference shows."""


class Ledger:
    """Writes down the versions that a member gets of each topic, and what else its updates say.

    Attributes:
        versions: by topic, as they came.
        snapshots: topics of snapshots behind the first update of the topic.
        folded: how many updates others took the place of.
        marks: how many that were of each update that says so, by topic and version.
    """

    def __init__(self) -> None:
        self.versions: defaultdict[str, list[int]] = defaultdict(list)
        self.snapshots: list[str] = []
        self.folded = 0
        self.marks: dict[tuple[str, int], int] = {}

    async def keep(self, stream: UpdateStream) -> None:
        async for update in stream:
            if update.snapshot and self.versions[update.topic]:
                self.snapshots.append(update.topic)
            if update.folded:
                self.folded += update.folded
                self.marks[update.topic, update.version] = update.folded
            self.versions[update.topic].append(update.version)

    def unfolded(self, topic: str, wanted: Sequence[int]) -> list[int]:
        """List the versions of a topic that came, with those that marks say others took the place of.

        Args:
            topic: which.
            wanted: all its versions, in order.
        """
        places = {version: place for place, version in enumerate(wanted)}
        found: list[int] = []
        for version in self.versions[topic]:
            place = places.get(version, 0)
            found += wanted[max(0, place - self.marks.get((topic, version), 0)) : place]
            found.append(version)
        return found


class Ledgers:
    """The ledgers of a crowd.

    Attributes:
        of: by the name of the member.
    """

    def __init__(self) -> None:
        self.of: defaultdict[str, Ledger] = defaultdict(Ledger)
        self._keeping: list[asyncio.Task[None]] = []

    async def enter(self, member: Member, number: int) -> None:
        """A third selects by a wildcard over all partitions, a third by one in a partition, a third by names."""
        selectors = {0: ("*/*",), 1: ("prices/**", *TOPICS[10:]), 2: TOPICS}[number % 3]
        for selector in selectors:
            stream = await member.session.subscribe(selector)
            self._keeping.append(asyncio.create_task(self.of[member.name].keep(stream)))

    async def judge(self, wanted: Mapping[str, Sequence[int]], *, folding: bool = False) -> None:
        """Wait until everybody has the last update of each topic; then nobody may have missed or repeated one.

        Args:
            wanted: all versions of each topic.
            folding: whether updates may have taken the place of others, if they say so.
        """
        await eventually(
            lambda: all(
                ledger.versions[topic][-1:] == versions[-1:]
                for ledger in self.of.values()
                for topic, versions in wanted.items()
            ),
            "everybody has the last update of each topic",
        )
        for name, ledger in self.of.items():
            if folding:
                assert {topic: ledger.unfolded(topic, versions) for topic, versions in wanted.items()} == wanted, name
                assert ledger.snapshots == [], name
                continue
            assert ledger.versions == wanted, (
                f"{name} missed or repeated something, {ledger.folded} were folded, snapshots came of "
                f"{ledger.snapshots}: {_differences(ledger, wanted)}"
            )
            assert (ledger.snapshots, ledger.folded) == ([], 0), name

    async def close(self) -> None:
        """Wait until the sessions have ended, and with them their streams."""
        await asyncio.gather(*self._keeping)


def _differences(ledger: Ledger, wanted: Mapping[str, Sequence[int]]) -> str:
    compared = {topic: difference(versions, ledger.versions[topic]) for topic, versions in wanted.items()}
    return "; ".join(f"{topic}: {told}" for topic, told in compared.items() if told)


def difference(wanted: Sequence[int], came: Sequence[int]) -> str:
    """Tell what was missed, came more than once, or came in another order; empty if nothing.

    Args:
        wanted: numbers, each once, in their order.
        came: the same, as a client was given them.
    """
    if came == wanted:
        return ""
    missing = sorted(set(wanted) - set(came))
    repeated = sorted(number for number, times in Counter(came).items() if times > 1)
    told = f"{len(wanted)} published, {len(came)} came, missing {missing[:SHOWN]}, repeated {repeated[:SHOWN]}"
    return told if missing or repeated else f"{told}, in another order: {came[: 5 * SHOWN]}"


class Trade:
    """Publishes to all topics until it is told to stop.

    Args:
        publishers: share the topics.
    """

    def __init__(self, publishers: Sequence[Member]) -> None:
        self.topics = [
            Counting(publishers[number % len(publishers)].session, topic) for number, topic in enumerate(TOPICS)
        ]
        self._stopping = asyncio.Event()

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Trade until the end of the block."""
        trading = [asyncio.create_task(self._trade(topic)) for topic in self.topics]
        try:
            yield
        finally:
            self._stopping.set()
            await asyncio.gather(*trading)

    async def rounds(self) -> None:
        """Wait until every topic has got some more publishes."""
        goals = {each.topic: len(each.receipts) + ROUNDS for each in self.topics}
        await eventually(
            lambda: all(len(each.receipts) >= goals[each.topic] for each in self.topics), "traffic goes on"
        )

    @property
    def versions(self) -> dict[str, list[int]]:
        """What was published to each topic, in order."""
        return {each.topic: sorted(receipt.version for receipt in each.receipts.values()) for each in self.topics}

    async def _trade(self, topic: Counting) -> None:
        while not self._stopping.is_set():
            await asyncio.gather(topic.publish(), asyncio.sleep(PACE))
