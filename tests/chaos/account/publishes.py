"""What publishers were promised, and what of it is in the logs of the topics (P2, P4, P5, P6)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.chaos.account.forgotten import Forgotten
from tests.chaos.account.violation import Violation, generation_of


@dataclass(frozen=True, slots=True)
class Entry:
    """One publish in the log of a topic, as Redis holds it.

    Attributes:
        event: its event id.
        version: of the topic.
        value: the count.
    """

    event: str
    version: int
    value: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What Redis held at a moment at which nodes agreed with it about the generation.

    Attributes:
        at: when the reading began.
        generation: of the grid.
        logs: entries by topic, the oldest first.
    """

    at: float
    generation: int
    logs: Mapping[str, Sequence[Entry]]


@dataclass(frozen=True, slots=True)
class Lost:
    """An acknowledged publish that is not in the grid.

    Attributes:
        topic: where.
        value: which.
        generation: in which it had been accepted.
        acknowledged: when.
        session: that published it.
    """

    topic: str
    value: int
    generation: int
    acknowledged: float
    session: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a publisher was told.

    Attributes:
        at: when.
        version: of the topic; 0 if the receipt was no longer known.
        event: its id; empty likewise.
    """

    at: float
    version: int
    event: str


@dataclass(slots=True)
class Topic:
    """The publishes of one session on a topic that nobody else publishes to.

    Attributes:
        name: of the topic.
        session: that publishes.
        asked: the last value that was asked for.
        times: when each was asked for.
        receipts: by value; values without one may have been executed, once, or not.
    """

    name: str
    session: str
    asked: int = 0
    times: dict[int, float] = field(default_factory=dict)
    receipts: dict[int, Receipt] = field(default_factory=dict)


class Publishes:
    """All publishes of a run.

    Attributes:
        topics: by name.
        violations: found so far.
        forgotten: what the grid was made to forget.
    """

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.forgotten: list[Forgotten] = []
        self.violations: list[Violation] = []

    @property
    def acknowledged(self) -> int:
        """How many receipts there are."""
        return sum(len(topic.receipts) for topic in self.topics.values())

    def ask(self, at: float, topic: str, session: str) -> int:
        """Begin a publish.

        Returns:
            The value to publish.
        """
        entry = self.topics.setdefault(topic, Topic(topic, session))
        entry.asked += 1
        entry.times[entry.asked] = at
        return entry.asked

    def acknowledge(self, at: float, topic: str, value: int, version: int, event: str) -> None:
        """Take a receipt in."""
        self.topics[topic].receipts[value] = Receipt(at, version, event)

    def may_be_repeated(self, topic: str, value: int) -> bool:
        """Tell whether a publish may have been executed twice: the grid forgot its receipt before the reply arrived.

        Its session asks again, as it must, and nobody can know any more. The loss itself is declared.
        """
        entry = self.topics.get(topic)
        if entry is None or value not in entry.times:
            return False
        receipt = entry.receipts.get(value)
        until = float("inf") if receipt is None else receipt.at
        return any(entry.times[value] <= each.ended and each.began <= until for each in self.forgotten)

    def judge_receipts(self) -> None:
        """See that versions rise with values, and that no two publishes share an event."""
        events: dict[str, str] = {}
        for topic in self.topics.values():
            told = [(value, receipt) for value, receipt in sorted(topic.receipts.items()) if receipt.version]
            for (before, first), (after, second) in pairwise(told):
                if second.version <= first.version:
                    what = f"value {after} got version {second.version}, value {before} had {first.version}"
                    self.violations.append(Violation("P6", second.at, topic.name, what))
            for value, receipt in told:
                name = f"{topic.name}={value}"
                other = events.setdefault(receipt.event, name)
                if other != name:
                    what = f"the event {receipt.event} of value {value} is also that of {other}"
                    self.violations.append(Violation("P5", receipt.at, topic.name, what))

    def judge_log(self, snapshot: Snapshot) -> list[Lost]:
        """Compare receipts with what Redis held.

        Returns:
            Acknowledged publishes that were lost with an older generation; that must have been declared.
        """
        lost: list[Lost] = []
        for name in self.topics.keys() | snapshot.logs.keys():
            lost += self._judge_topic(snapshot, name, snapshot.logs.get(name, ()))
        return lost

    def _judge_topic(self, snapshot: Snapshot, name: str, log: Sequence[Entry]) -> list[Lost]:
        topic = self.topics.get(name)
        if topic is None:
            self._violated("P5", snapshot, name, "was published to by nobody")
            return []
        # What nodes have put back has the event of its publish, which was executed once.
        for value, times in Counter(value for value, _ in {(entry.value, entry.event) for entry in log}).items():
            if times > 1 and not self.may_be_repeated(name, value):
                versions = [entry.version for entry in log if entry.value == value]
                self._violated(
                    "P5", snapshot, name, f"value {value} is in the log {times} times, as versions {versions}"
                )
        for first, second in pairwise(log):
            if second.version <= first.version or second.value < first.value:
                self._violated("P6", snapshot, name, f"{second} stands behind {first}")
        if log and max(entry.value for entry in log) > topic.asked:
            self._violated("P5", snapshot, name, f"{log[-1]} was asked for by nobody, who is at {topic.asked}")
        return self._judge_receipts_of(snapshot, topic, log)

    def _judge_receipts_of(self, snapshot: Snapshot, topic: Topic, log: Sequence[Entry]) -> list[Lost]:
        lost = []
        undeclared = []
        held: dict[int, list[Entry]] = defaultdict(list)
        for entry in log:
            held[entry.value].append(entry)
        for value, receipt in topic.receipts.items():
            if value in held:
                told = (receipt.version, receipt.event)
                as_told = any(
                    entry.event == receipt.event and entry.version >= receipt.version for entry in held[value]
                )
                if receipt.version and not as_told and not self.may_be_repeated(topic.name, value):
                    what = f"value {value} is in the log as {held[value]}, its receipt says {told}"
                    self._violated("P5", snapshot, topic.name, what)
            elif receipt.at < snapshot.at:
                generation = generation_of(receipt.version)
                if receipt.version and generation < snapshot.generation:
                    lost.append(Lost(topic.name, value, generation, receipt.at, topic.session))
                elif receipt.version:
                    undeclared.append(value)
        if undeclared:
            what = (
                f"{len(undeclared)} acknowledged publishes of this generation are not in the log, first {undeclared[0]}"
            )
            self._violated("P5", snapshot, topic.name, what)
        return lost

    def _violated(self, promise: str, snapshot: Snapshot, who: str, what: str) -> None:
        self.violations.append(Violation(promise, snapshot.at, who, what))


def by_generation(lost: Sequence[Lost]) -> dict[int, list[Lost]]:
    """Group what was lost by the generation that it was lost with."""
    grouped: dict[int, list[Lost]] = defaultdict(list)
    for each in lost:
        grouped[each.generation].append(each)
    return dict(grouped)
