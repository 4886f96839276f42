"""Judges a run by what pages recorded, what others published, and what the grid holds; by rules of its own.

```text
record of each page ─┐
other publishers ────┼──▶ account ──▶ violations, each with the number of the promise
logs of the topics ──┘
```

A page's word is not taken alone. What it was sent is compared with the logs of the topics in the grid, entry by entry:
that shows losses, inventions and repetitions whoever is to blame. Knows no network, no clock and no browser.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from gateway.local.checker import FAILED_OVER, REATTACHED, Violation
from tests.browser.record import Entry, Life
from tests.cluster.grid_reader import LogEntry

OUTCOMES: Final = frozenset({REATTACHED, FAILED_OVER, "handed_over", "mirrored"})
"""The rungs of the ladder by which a session can be recovered."""

KEPT_WHOLE: Final = OUTCOMES - {FAILED_OVER}
"""Those on which nothing may be lost."""

SUPERSEDED_CODES: Final = frozenset({"superseded", "token_superseded", "stale_attempt"})
"""Codes of a session that goes on elsewhere (protocol 4.2, 8.2)."""

TAKEN_OVER_SECONDS: Final = 5.0
"""How much later the page that takes a session over may tell of it than the page that loses it."""

UNDECIDED: Final = frozenset({"internal"})
"""Codes of refusals after which a publish may have been executed all the same."""

Log = Mapping[str, Sequence[LogEntry]]
"""The entries of each topic in the grid, the oldest first."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a publisher was told of one publish.

    Attributes:
        event: the event id; empty where the receipt is no longer kept.
        version: of the topic; 0 likewise.
        at: when, in seconds since 1970.
    """

    event: str
    version: int
    at: float


@dataclass(frozen=True, slots=True)
class DeclaredLoss:
    """The grid came back with less than it had, and said so.

    Attributes:
        since: what was acknowledged or seen before, in seconds since 1970, is not concerned.
        until: nor what came after.
    """

    since: float
    until: float

    def concerns(self, at: float) -> bool:
        """Tell whether what was told at that time may be lost."""
        return self.since <= at <= self.until


@dataclass
class Publishes:
    """What one publisher asked for on one topic, and what it was told.

    Attributes:
        topic: nobody else publishes there.
        asked: the last value; they are counted from 1.
        receipts: by value.
        refused: values that were refused for certain.
        open_ended: whether more may have been asked for than is known.
    """

    topic: str
    asked: int = 0
    receipts: dict[int, Receipt] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    open_ended: bool = False


@dataclass(frozen=True, slots=True)
class Permitted:
    """An end of a session that a fault was meant to bring about.

    Attributes:
        session: which.
        since: seconds since 1970 from which on its client may say that it is over.
    """

    session: str
    since: float


@dataclass
class Figures:
    """What was counted on the way, for people.

    Attributes:
        updates: delivered to pages.
        snapshots: full values among them.
        folded: updates that others took the place of, and said so.
        acknowledged: publishes.
        recoveries: by outcome.
        gaps: seconds until a session was back; a page that was reloaded cannot know.
        notices: by code.
    """

    updates: int = 0
    snapshots: int = 0
    folded: int = 0
    acknowledged: int = 0
    recoveries: Counter[str] = field(default_factory=Counter)
    gaps: list[float] = field(default_factory=list)
    notices: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        rungs = _counted(self.recoveries)
        longest = f", at most {max(self.gaps):.1f} s" if self.gaps else ""
        return (
            f"{self.updates:,} updates, {self.snapshots:,} of them snapshots, {self.folded:,} folded and said so; "
            f"{self.acknowledged:,} publishes acknowledged; recoveries: {rungs}{longest}; "
            f"notices: {_counted(self.notices)}"
        )


def _counted(names: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(names.items())) or "none"


def figures_of(lives: Iterable[Life]) -> Figures:
    """Count."""
    figures = Figures()
    for life in lives:
        for entry in life.entries:
            match entry.kind:
                case "update":
                    figures.updates += 1
                    figures.snapshots += entry["snapshot"]
                    figures.folded += entry["folded"]
                case "receipt":
                    figures.acknowledged += 1
                case "notice":
                    figures.notices[entry["code"]] += 1
                case "recovery":
                    figures.recoveries[entry["outcome"]] += 1
                    if entry["gapSeconds"] is not None:
                        figures.gaps.append(entry["gapSeconds"])
    return figures


# --- Updates ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Topic:
    """A topic's log, to be asked for versions."""

    versions: list[int]
    entries: dict[int, LogEntry]

    def between(self, older: int, newer: int) -> int:
        """Count the publishes after one version and before another."""
        return bisect_left(self.versions, newer) - bisect_right(self.versions, older)


def judge_updates(lives: Iterable[Life], log: Log, *, losses: Sequence[DeclaredLoss] = ()) -> list[Violation]:
    """Judge what pages were sent: in order, complete or declared, and nothing that was not published (P2, P6).

    Args:
        lives: what they recorded.
        log: of every topic.
        losses: what was seen meanwhile may be missing in the log.
    """
    topics = {
        topic: _Topic([entry.version for entry in entries], {entry.version: entry for entry in entries})
        for topic, entries in log.items()
    }
    lives = list(lives)
    violations: list[Violation] = []
    for life in lives:
        floors = _floors(life, lives)
        last: dict[tuple[str, str], Entry] = {}
        for entry in life.of("update"):
            stream, topic = entry["stream"], entry["topic"]
            who = f"{life.tab}, {stream} on {topic}"
            before = last.get((stream, topic))
            known = topics.get(topic, _Topic([], {}))
            if not any(loss.concerns(entry.at) for loss in losses):
                violations += _invented(who, entry, known)
            if before is None:
                floor = floors.get((_session_of(stream), topic), 0)
                if entry["version"] < floor:
                    violations.append(
                        Violation("P6", f"{who}: version {entry['version']} after a reload, {floor} before")
                    )
            else:
                violations += _succession(who, before, entry, known)
            if before is None or entry["version"] >= before["version"]:
                last[stream, topic] = entry
    return violations


def _session_of(stream: str) -> str:
    return stream.partition(" ")[0]


def _floors(life: Life, lives: Sequence[Life]) -> dict[tuple[str, str], int]:
    """Tell the highest version by session and topic that other documents had when this one began."""
    began = life.entries[0].at if life.entries else 0.0
    floors: dict[tuple[str, str], int] = {}
    for other in lives:
        if other is life or not other.entries or other.tab != life.tab:
            continue
        for entry in other.of("update"):
            key = (_session_of(entry["stream"]), entry["topic"])
            if entry.at < began and entry["version"] > floors.get(key, 0):
                floors[key] = entry["version"]
    return floors


def _invented(who: str, entry: Entry, known: _Topic) -> list[Violation]:
    stored = known.entries.get(entry["version"])
    seen = f"version {entry['version']} with value {entry['value']}"
    if stored is None:
        return [Violation("P6", f"{who}: {seen} was never published")]
    if (stored.value, stored.event) != (entry["value"], entry["event"]):
        return [Violation("P6", f"{who}: {seen}, event {entry['event']}, but the grid has {stored}")]
    return []


def _succession(who: str, before: Entry, entry: Entry, known: _Topic) -> list[Violation]:
    older, newer, snapshot = before["version"], entry["version"], entry["snapshot"]
    if newer < older:
        return [Violation("P6", f"{who}: went back from version {older} to {newer}")]
    if newer == older:
        return [] if snapshot else [Violation("P2", f"{who}: version {newer} was delivered twice")]
    if snapshot:
        return []
    missing, folded = known.between(older, newer), entry["folded"]
    if missing > folded:
        hole = f"between version {older} and {newer}, {folded} of them declared"
        return [Violation("P2", f"{who}: {missing} updates are missing {hole}")]
    if missing < folded:
        return [
            Violation("P2", f"{who}: version {newer} says that it stands for {folded} more, but it does for {missing}")
        ]
    return []


# --- Publishes --------------------------------------------------------------------------------------------------------


def publishes_of(lives: Iterable[Life]) -> list[Publishes]:
    """Read from the records what pages published."""
    found: dict[str, Publishes] = {}
    for life in lives:
        for entry in life.of("publish", "receipt", "refusal"):
            ledger = found.setdefault(entry["topic"], Publishes(entry["topic"], open_ended=not life.whole))
            match entry.kind:
                case "publish":
                    ledger.asked = entry["value"]
                case "receipt":
                    ledger.receipts[entry["value"]] = Receipt(entry["event"], entry["version"], entry.at)
                case "refusal" if entry["name"] not in _UNCERTAIN and entry["code"] not in UNDECIDED:
                    ledger.refused.add(entry["value"])
    return list(found.values())


_UNCERTAIN: Final = frozenset(
    {"RequestTimedOut", "SessionEnded", "SessionClosed", "SessionExpired", "SessionRefused", "SessionFailed"}
)
"""Errors of publishes that may or may not have been executed."""


def judge_publishes(ledgers: Iterable[Publishes], log: Log, *, losses: Sequence[DeclaredLoss] = ()) -> list[Violation]:
    """Judge what was published: each acknowledged publish is in the grid exactly once, as its receipt says (P5).

    Args:
        ledgers: of all publishers, one for each topic.
        log: of every topic.
        losses: what was acknowledged meanwhile may be missing.
    """
    violations: list[Violation] = []
    for ledger in ledgers:
        entries = log.get(ledger.topic, ())
        violations += [
            Violation("P5", f"the grid has on {ledger.topic} {each}") for each in _wrong_entries(ledger, entries)
        ]
        violations += _judge_receipts(ledger, {entry.value: entry for entry in entries}, losses)
    return violations


def _wrong_entries(ledger: Publishes, entries: Sequence[LogEntry]) -> list[str]:
    times = Counter(entry.value for entry in entries)
    wrong = [f"{count} times value {value}" for value, count in times.items() if count > 1]
    if not ledger.open_ended:
        wrong += [f"value {value}, for which nobody asked" for value in times if not 1 <= value <= ledger.asked]
    wrong += [f"value {value}, which was refused" for value in sorted(ledger.refused & times.keys())]
    for before, after in pairwise(entries):
        if after.value < before.value:
            wrong.append(f"value {after.value} after value {before.value}")
        if after.version <= before.version:
            wrong.append(f"version {after.version} after version {before.version}")
    return wrong


def _judge_receipts(
    ledger: Publishes, stored: Mapping[int, LogEntry], losses: Sequence[DeclaredLoss]
) -> list[Violation]:
    violations: list[Violation] = []
    for value, receipt in sorted(ledger.receipts.items()):
        what, entry = f"value {value} on {ledger.topic}", stored.get(value)
        if entry is None:
            if not any(loss.concerns(receipt.at) for loss in losses):
                violations.append(Violation("P5", f"{what} was acknowledged and is not in the grid"))
        elif receipt.version and (receipt.event, receipt.version) != (entry.event, entry.version):
            violations.append(Violation("P5", f"the receipt of {what} is {receipt}, not {entry}"))
    return violations


# --- Sessions ---------------------------------------------------------------------------------------------------------


def judge_sessions(
    lives: Sequence[Life], *, principals: Mapping[str, str], permitted: Sequence[Permitted] = ()
) -> list[Violation]:
    """Judge whether each tab kept its session over everything but the end of its window (P1, P7).

    Args:
        lives: what pages recorded.
        principals: by tab.
        permitted: ends that faults were meant to bring about; each of them must have come.
    """
    judge = _Sessions(lives, principals, permitted)
    happened = [(entry.at, life, entry) for life in lives for entry in life.of("opened", "ended", "recovery")]
    for _, life, entry in sorted(happened, key=lambda each: each[0]):
        match entry.kind:
            case "opened":
                judge.opened(life, entry)
            case "ended":
                judge.ended(life, entry)
            case "recovery":
                judge.recovered(life, entry)
    judge.finish()
    return judge.violations


class _Sessions:
    """Follows which session each tab has."""

    def __init__(self, lives: Sequence[Life], principals: Mapping[str, str], permitted: Sequence[Permitted]) -> None:
        self.violations: list[Violation] = []
        self._lives = lives
        self._principals = principals
        self._may_end = {each.session: each.since for each in permitted}
        self._held: dict[str, str] = {}
        self._over: set[str] = set()

    def opened(self, life: Life, entry: Entry) -> None:
        tab, session, before = life.tab, entry["session"], self._held.get(life.tab)
        if entry["principal"] != self._principals[tab]:
            self._violated("P1", f"{tab}: session {session} is of {entry['principal']}")
        if not entry["replicated"]:
            self._violated("P1", f"{tab}: session {session} does not outlive its node")
        if before not in {None, session} and not self._may(before, entry.at):
            self._violated("P7", f"{tab}: session {before} was left for {session}")
        if session in self._over:
            self._violated("P7", f"{tab}: session {session} was over, and is resumed")
        self._held[tab] = session

    def ended(self, life: Life, entry: Entry) -> None:
        session = entry["session"]
        if entry["name"] == "SessionClosed" or self._may(session, entry.at):
            self._over.add(session)
        elif not self._superseded(life, entry):
            why = f"{entry['name']}, {entry['code']}: {entry['message']}"
            self._violated("P7", f"{life.tab}: session {session} ended with {why}")

    def recovered(self, life: Life, entry: Entry) -> None:
        outcome, lost = entry["outcome"], entry["lost"]
        if outcome not in OUTCOMES:
            self._violated("P2", f"{life.tab}: recovered by {outcome}, which is no rung of the ladder")
        elif outcome in KEPT_WHOLE and lost != 0:
            self._violated("P2", f"{life.tab}: {outcome}, and yet {lost} packets are lost")

    def finish(self) -> None:
        for session in self._may_end.keys() - self._over:
            self._violated("P7", f"session {session} was to end with its window and did not")

    def _may(self, session: str | None, at: float) -> bool:
        return session in self._may_end and at >= self._may_end[session]

    def _superseded(self, life: Life, entry: Entry) -> bool:
        """Tell whether another page goes on with the session, and this one was told so."""
        told = entry["name"] == "SessionRefused" and entry["code"] in SUPERSEDED_CODES
        return told and any(
            opened["session"] == entry["session"]
            for other in self._lives
            if other is not life
            for opened in other.of("opened")
            if opened.at <= entry.at + TAKEN_OVER_SECONDS and other.entries[-1].at >= entry.at
        )

    def _violated(self, promise: str, what: str) -> None:
        self.violations.append(Violation(promise, what))


# --- Behaviour and secrets --------------------------------------------------------------------------------------------


def judge_behaviour(lives: Iterable[Life], complaints: Mapping[str, Sequence[str]]) -> list[Violation]:
    """Judge whether pages ran without an error that nobody caught (C1: the client throws only what is documented).

    Args:
        lives: what they recorded.
        complaints: of each tab, what the browser itself reports: uncaught exceptions and errors on the console.
    """
    violations = [
        Violation("C1", f"{life.tab}: {entry['where']}: {entry['name']}: {entry['message']}")
        for life in lives
        for entry in life.of("error", "subscribe_failed")
        if not (entry.kind == "subscribe_failed" and entry["name"] in _UNCERTAIN)
    ]
    return violations + [
        Violation("C1", f"{tab}: the browser reports {text}") for tab, texts in complaints.items() for text in texts
    ]


def judge_secrecy(
    tokens: Iterable[str], secrets: Iterable[str], places: Mapping[str, Iterable[str]]
) -> list[Violation]:
    """Judge whether what is secret stayed so (P8): no token and no secret is anywhere but where it belongs.

    Args:
        tokens: of all sessions, as they were seen on the wire.
        secrets: that clients have shown.
        places: texts by the name of the place where they were found; the kept record itself is none.
    """
    hidden = [("a token", token) for token in tokens] + [("a secret", secret) for secret in secrets]
    return [
        Violation("P8", f"{what} is in {place}")
        for place, texts in places.items()
        for what in sorted({what for text in texts for what, secret in hidden if secret in text})
    ]
