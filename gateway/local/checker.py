"""Judges what clients saw against the promises of docs/explanation/architecture.md. Knows no network and no clock.

Each publisher counts 1, 2, 3, … on a topic of its own, one publish after the other. That makes every fault visible,
because three counts must agree: the values are contiguous by construction, versions grow by one per publish within a
generation of the grid (P6), and the grid gives one receipt per publish (P5):

```text
seen before    seen now                   means
value version  value version  snapshot
  7     12       8     13       no        the next update: fine
  7     12       9     14       yes       skipped, and declared as a full value: fine (P2)
  7     12       9     14       no        told to stand for one (folded): fine; else one update lost in silence (P2)
  7     12       7     12       no        delivered twice
  7     12       7     13       either    published twice: the grid executed one request two times
  7     12       7     2^32     yes       the same publish, read in a later generation of the grid: fine
  7     12       6     11       either    went back in time
  7     12       8     14       either    something was published that nobody asked for
```
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.core.topics.versions import GENERATION_SHIFT
from gateway.core.wire.codes import RECOVERED, Outcome

REATTACHED: Final = Outcome.REATTACHED.value
HANDED_OVER: Final = Outcome.HANDED_OVER.value
MIRRORED: Final = Outcome.MIRRORED.value
FAILED_OVER: Final = Outcome.FAILED_OVER.value

_NOTHING_LOST: Final = frozenset(RECOVERED) - {FAILED_OVER}
"""Outcomes on which every packet arrives."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken.

    Attributes:
        promise: its number, for example ``P6``.
        what: what was seen and what should have been.
    """

    promise: str
    what: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"


@dataclass(slots=True)
class Tally:
    """What subscribers counted; all but the first three must stay 0.

    Attributes:
        delivered: updates received, snapshots among them.
        snapshots: full values among them.
        skipped: updates that a snapshot, or a folded update, declared to stand for.
        lost: updates missing in silence.
        duplicated: updates delivered twice without being declared snapshots.
        out_of_order: updates older than one delivered before.
        contradictory: updates whose version and value do not belong together.
    """

    delivered: int = 0
    snapshots: int = 0
    skipped: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    contradictory: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(mine + theirs for mine, theirs in zip(self.counts(), other.counts(), strict=True)))

    def counts(self) -> tuple[int, ...]:
        """Return all counts in the order of their declaration."""
        return (
            self.delivered,
            self.snapshots,
            self.skipped,
            self.lost,
            self.duplicated,
            self.out_of_order,
            self.contradictory,
        )


class TopicWatch:
    """What one subscriber sees of one topic (P2, P6)."""

    def __init__(self, subscriber: str, topic: str) -> None:
        """Begin to watch.

        Args:
            subscriber: named in violations.
            topic: likewise.
        """
        self.tally = Tally()
        self.violations: list[Violation] = []
        self.value = 0
        self.version = 0
        self._name = f"{subscriber} on {topic}"

    def observe(self, value: int, version: int, *, snapshot: bool, folded: int = 0) -> None:
        """Take one update in, in the order of arrival; *folded* is how many it says that it took the place of."""
        tally = self.tally
        tally.delivered += 1
        tally.snapshots += snapshot
        known = self.version > 0
        if known and version < self.version:
            tally.out_of_order += 1
            self._violated("P6", value, version, "went back")
            # The newest stays what the next one is compared with.
            return
        if known and version == self.version:
            self._observe_again(value, version, snapshot=snapshot)
            return
        if known:
            self._observe_next(value, version, snapshot=snapshot, folded=folded)
        self.value, self.version = value, version

    def _observe_again(self, value: int, version: int, *, snapshot: bool) -> None:
        if value != self.value:
            self.tally.contradictory += 1
            self._violated("P6", value, version, "one version came with two values")
        elif not snapshot:
            self.tally.duplicated += 1
            self._violated("P2", value, version, "was delivered twice")

    def _observe_next(self, value: int, version: int, *, snapshot: bool, folded: int) -> None:
        step = value - self.value
        later_generation = _generation(version) > _generation(self.version)
        if step == 0 and snapshot and later_generation:
            return
        if step <= 0:
            self.tally.contradictory += 1
            self._violated("P5", value, version, "an old value got a new version: it was published twice")
            return
        if not later_generation and version - self.version != step:
            self.tally.contradictory += 1
            self._violated("P5", value, version, f"{step} publishes made {version - self.version} versions")
        declared = step - 1 if snapshot else min(step - 1, folded)
        self.tally.skipped += declared
        if lost := step - 1 - declared:
            self.tally.lost += lost
            self._violated("P2", value, version, f"{lost} updates were lost in silence")

    def _violated(self, promise: str, value: int, version: int, what: str) -> None:
        seen = f"value {value} version {version} after value {self.value} version {self.version}"
        self.violations.append(Violation(promise, f"{self._name}: {what} ({seen})"))


class PublishLedger:
    """What one publisher was promised (P4, P5).

    Attributes:
        topic: its topic.
        accepted: the last value that was acknowledged.
        version: of that value.
        violations: what was wrong.
    """

    def __init__(self, topic: str) -> None:
        """Begin with no publishes on *topic*."""
        self.topic = topic
        self.accepted = 0
        self.version = 0
        self.violations: list[Violation] = []
        self._events: set[str] = set()

    def acknowledge(self, value: int, version: int, event: str) -> None:
        """Take the receipt of one publish in, in the order of the publishes."""
        name = f"publish {value} on {self.topic}"
        if value != self.accepted + 1:
            self.violations.append(Violation("P5", f"{name}: acknowledged after {self.accepted}"))
        if event in self._events:
            self.violations.append(Violation("P5", f"{name}: its event {event} is another publish's"))
        if version <= self.version:
            self.violations.append(Violation("P6", f"{name}: version {version} after version {self.version}"))
        elif self.version and _generation(version) == _generation(self.version):
            made = version - self.version
            if made != value - self.accepted:
                asked = value - self.accepted
                self.violations.append(Violation("P5", f"{name}: {asked} publishes made {made} versions in the grid"))
        self._events.add(event)
        self.accepted, self.version = value, version


@dataclass(frozen=True, slots=True)
class RecoverySeen:
    """One recovery that a client was told of.

    Attributes:
        session: whose.
        outcome: rung of the ladder.
        node: where it went on.
        gap_seconds: time without a connection.
        lost: packets declared lost; None if the server could not know.
        replayed: whether the client was told that every update it had missed follows a failover.
    """

    session: str
    outcome: str
    node: str
    gap_seconds: float
    lost: int | None
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Expectation:
    """What one fault may do to clients.

    Attributes:
        step: the fault, for people.
        affected: sessions that must recover.
        outcomes: the rungs by which they may.
        whole: sessions that have to be told that they have missed nothing, if they are affected.
    """

    step: str
    affected: frozenset[str]
    outcomes: frozenset[str]
    whole: frozenset[str] = frozenset()

    def judge(self, recoveries: Iterable[RecoverySeen]) -> list[Violation]:
        """Compare with what happened: those affected came back as they may, and nobody else noticed."""
        violations = []
        recovered = set()
        for recovery in recoveries:
            recovered.add(recovery.session)
            who = f"{self.step}: {recovery.session}"
            if recovery.session not in self.affected:
                violations.append(Violation("P7", f"{who} was not concerned and yet {recovery.outcome}"))
            elif recovery.outcome not in self.outcomes:
                allowed = " or ".join(sorted(self.outcomes))
                violations.append(Violation("P2", f"{who} was {recovery.outcome} instead of {allowed}"))
            if recovery.outcome in _NOTHING_LOST and recovery.lost != 0:
                lost = f"{who} was {recovery.outcome}, and yet lost {recovery.lost} packets"
                violations.append(Violation("P2", lost))
            if recovery.replayed and recovery.lost != 0:
                violations.append(Violation("P13", f"{who} was replayed, and yet lost {recovery.lost} packets"))
            if recovery.session in self.whole and recovery.outcome == FAILED_OVER and not recovery.replayed:
                violations.append(Violation("P13", f"{who} was not sent all that it had missed"))
        violations += [
            Violation("P1", f"{self.step}: {session} did not come back")
            for session in sorted(self.affected - recovered)
        ]
        return violations


class DeliveryLedger:
    """What subscribers get from one moment to another, to tell whether it was every update, once (P12, P13).

    A topic's values count its publishes. So whoever gets every update once, and none by a full value or a folded one,
    gets as many updates as the value grows by.

    Args:
        watches: what subscribers have seen so far, by subscriber and topic; they go on watching.

    Attributes:
        due: updates that were published for subscribers meanwhile, for each of them once; known after ``judge``.
        came: updates that they got, without full values; likewise.
    """

    def __init__(self, watches: Mapping[tuple[str, str], TopicWatch]) -> None:
        self.due = self.came = 0
        self._watches = dict(watches)
        self._begins = {key: (watch.value, _updates(watch)) for key, watch in watches.items()}

    def judge(self, step: str) -> list[Violation]:
        """Compare what came with what was due.

        Args:
            step: what happened meanwhile, for people.
        """
        violations = []
        for (subscriber, topic), watch in sorted(self._watches.items()):
            value, updates = self._begins[subscriber, topic]
            due, came = watch.value - value, _updates(watch) - updates
            self.due += due
            self.came += came
            if came != due:
                who = f"{step}: {subscriber} on {topic}"
                violations.append(Violation("P13", f"{who}: {due} updates were published, and {came} came"))
        if not self.due:
            violations.append(Violation("P13", f"{step}: nothing was published, so nothing was shown"))
        return violations


def _updates(watch: TopicWatch) -> int:
    return watch.tally.delivered - watch.tally.snapshots


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What must not change in a session's life.

    Attributes:
        id: of the session.
        principal: whose it is.
        properties: the user's own, without the server's (``$…``).
    """

    id: str
    principal: str
    properties: Mapping[str, str]


@dataclass
class Verdict:
    """Everything that was judged at the end.

    Attributes:
        violations: what was broken; empty is a pass.
        tally: over all subscribers and topics.
        outcomes: recoveries by rung.
        replayed: of these, failovers that were followed by every update that was missed.
        gaps: times to recover, in seconds, ascending, by rung.
        published: publishes acknowledged.
        slowest_publish: the longest wait for a receipt, in seconds; nothing that was asked again or waited is left out.
        sessions: how many sessions took part.
        checks: how many single facts were compared at the end.
    """

    violations: list[Violation] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    outcomes: Counter[str] = field(default_factory=Counter)
    replayed: int = 0
    gaps: dict[str, list[float]] = field(default_factory=dict)
    published: int = 0
    slowest_publish: float = 0.0
    sessions: int = 0
    checks: int = 0

    @property
    def passed(self) -> bool:
        """Whether every promise was kept."""
        return not self.violations

    def judge_sessions(self, before: Mapping[str, SessionFacts], after: Mapping[str, SessionFacts | None]) -> None:
        """Compare each session with what it was at the beginning; None for one that has ended (P1, P7)."""
        self.sessions = len(before)
        for name, was in before.items():
            self.checks += 1
            now = after.get(name)
            if now is None:
                self.violations.append(Violation("P7", f"{name}: its session was lost"))
            elif now != was:
                self.violations.append(Violation("P1", f"{name}: changed from {was} to {now}"))

    def judge_recoveries(self, recoveries: Sequence[RecoverySeen]) -> None:
        """Count recoveries by rung."""
        for recovery in recoveries:
            self.outcomes[recovery.outcome] += 1
            self.replayed += recovery.replayed
            self.gaps.setdefault(recovery.outcome, []).append(recovery.gap_seconds)
        for gaps in self.gaps.values():
            gaps.sort()

    def judge_deliveries(
        self, ledgers: Collection[PublishLedger], watches: Mapping[tuple[str, str], TopicWatch]
    ) -> None:
        """Add up what publishers and subscribers noted on their way."""
        for ledger in ledgers:
            self.published += ledger.accepted
            self.violations += ledger.violations
        for watch in watches.values():
            self.tally += watch.tally
            self.violations += watch.violations

    def judge_values(
        self,
        ledgers: Collection[PublishLedger],
        watches: Mapping[tuple[str, str], TopicWatch],
        grid: Mapping[str, tuple[int, int]],
        subscribers: Collection[str],
    ) -> None:
        """Compare publishers, grid and subscribers, when all is quiet (P5, P6).

        Args:
            ledgers: of all publishers, one topic each.
            watches: by subscriber and topic.
            grid: (value, version) by topic, as somebody reads it who was not there before.
            subscribers: all of them; each must know each topic.
        """
        if not ledgers or not subscribers:
            self.violations.append(Violation("P6", "nothing was compared, so nothing was shown"))
        for ledger in ledgers:
            self._judge_topic(ledger, grid.get(ledger.topic))
            for subscriber in sorted(subscribers):
                self._judge_last(subscriber, ledger, watches.get((subscriber, ledger.topic)))

    def _judge_topic(self, ledger: PublishLedger, stored: tuple[int, int] | None) -> None:
        self.checks += 1
        if ledger.accepted == 0:
            self.violations.append(Violation("P5", f"{ledger.topic}: nothing was published, so nothing was shown"))
        elif stored is None:
            self.violations.append(Violation("P5", f"{ledger.topic}: the grid has no value"))
        elif not _is_promised(stored, ledger):
            promised = f"value {ledger.accepted} version {ledger.version}"
            self.violations.append(
                Violation(
                    "P5",
                    f"{ledger.topic}: {promised} was acknowledged, the grid has value {stored[0]} version {stored[1]}",
                )
            )

    def _judge_last(self, subscriber: str, ledger: PublishLedger, watch: TopicWatch | None) -> None:
        self.checks += 1
        if watch is None or watch.tally.delivered == 0:
            self.violations.append(Violation("P6", f"{subscriber} on {ledger.topic}: nothing was ever received"))
        elif not _is_promised((watch.value, watch.version), ledger):
            self.violations.append(
                Violation(
                    "P6",
                    f"{subscriber} on {ledger.topic}: ended at value {watch.value} version {watch.version} instead of "
                    f"value {ledger.accepted} version {ledger.version}",
                )
            )


def _is_promised(seen: tuple[int, int], ledger: PublishLedger) -> bool:
    """Tell whether a value and its version are what was acknowledged last, or that in a later generation."""
    value, version = seen
    later = _generation(version) > _generation(ledger.version)
    return value == ledger.accepted and (version == ledger.version or later)


def _generation(version: int) -> int:
    return version >> GENERATION_SHIFT
