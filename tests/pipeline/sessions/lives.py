"""Lives of sessions for tests: what happened, who told it, and by which clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from random import Random

from hypothesis import strategies as st

from gateway.core.journal import VERSION, Record
from gateway.core.journal.events import TRAFFIC_MEASURED
from pipeline.sessions import Fact
from pipeline.sessions.rules import (
    CLOSED,
    DISCONNECTED,
    EXPIRED,
    FENCED,
    OPENED,
    ORPHANED,
    REFUSED,
    RESUMED,
    SLOW_CLOSED,
)

SECOND = 1_000_000
_REASONS = ("stale_attempt", "grid_unavailable")
START = 1_767_000_000 * SECOND
NODES = ("n1", "n2", "n3")


@dataclass
class Teller:
    """Tells the events of one session, each by the clock and the numbers of the node that tells."""

    facts: list[Fact] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    skew: dict[str, int] = field(default_factory=dict)

    def tell(self, type_: str, at: float, node: str, epoch: int | None = None, **told: object) -> Fact:
        """Tell an event *at* seconds after the start."""
        number = self.numbers[node] = self.numbers.get(node, 0) + 1
        moment = START + round(at * SECOND) + self.skew.get(node, 0)
        fact = Fact(type_, moment, node, f"{node}.1", number, epoch, "1.0", **told)  # type: ignore[arg-type]
        self.facts.append(fact)
        return fact

    def opened(self, at: float, node: str = "n1", *, window_ms: int | None = 60_000) -> Fact:
        return self.tell(OPENED, at, node, 1, principal="alice", client="test/1", window_ms=window_ms)

    def resumed(self, at: float, node: str, epoch: int, **told: object) -> Fact:
        return self.tell(RESUMED, at, node, epoch, **{"rung": "failed_over", "principal": "alice", **told})

    def disconnected(self, at: float, node: str, epoch: int, **told: object) -> Fact:
        return self.tell(DISCONNECTED, at, node, epoch, **told)

    def orphaned(self, at: float, by: str, dead: str, epoch: int, *, since: float, until: float) -> Fact:
        bounds = {"since": START + round(since * SECOND), "until": START + round(until * SECOND)}
        return self.tell(ORPHANED, at, by, epoch, peer=dead, peer_incarnation=f"{dead}.1", **bounds)


def live(chance: Random, teller: Teller, now: float = 0.0) -> list[Fact]:
    """Live one session at random: clocks that differ, nodes that die, clients that lie, and events that are missing."""
    begun = len(teller.facts)
    node = chance.choice(NODES)
    teller.opened(now, node, window_ms=chance.choice([None, 1_000, 60_000]))
    epoch = 1
    for _ in range(chance.randint(0, 4)):
        now += chance.randint(0, 20)
        _lose(chance, teller, now, node, epoch)
        gone = now
        now += chance.randint(0, 20)
        if chance.random() < 0.3:
            teller.tell(REFUSED, now, chance.choice(NODES), epoch, reason=chance.choice(_REASONS))
        previous, node = node, chance.choice(NODES)
        epoch += 1
        away_ms = chance.choice([None, round((now - gone) * 1000), -1, 10**12, 10**6])
        lost, replayed = chance.choice([None, 2]), chance.choice([None, False, True])
        teller.resumed(now, node, epoch, peer=previous, away_ms=away_ms, resent=1, lost=lost, replayed=replayed)
        if previous != node and chance.random() < 0.5:
            teller.tell(FENCED, now + 1, previous, epoch - 1)
    now += chance.randint(0, 90)
    _end(chance, teller, now, node, epoch)
    told = teller.facts[begun:]
    missing = chance.choice([0.0, 0.0, 0.3])
    kept = [each for each in told if chance.random() >= missing] or told
    teller.facts[begun:] = kept
    return kept


def _lose(chance: Random, teller: Teller, now: float, node: str, epoch: int) -> None:
    match chance.choice(["lost", "slow", "died", "silent"]):
        case "lost":
            teller.disconnected(now, node, epoch, cause=chance.choice([None, "going_away"]), deduplicated=1)
        case "slow":
            teller.tell(SLOW_CLOSED, now, node, epoch)
            if chance.random() < 0.5:
                teller.disconnected(now, node, epoch, cause="slow_consumer")
        case "died":
            survivor = chance.choice([each for each in NODES if each != node])
            teller.orphaned(now + 2, survivor, node, epoch, since=now - 1, until=now + 1)


def _end(chance: Random, teller: Teller, now: float, node: str, epoch: int) -> None:
    match chance.choice(["closed", "expired", "lost", "connected"]):
        case "closed":
            teller.tell(CLOSED, now, node, epoch, reason="done")
        case "expired":
            teller.tell(EXPIRED, now, node, epoch)
        case "lost":
            teller.disconnected(now, node, epoch)


@st.composite
def lives(draw: st.DrawFn) -> list[Fact]:
    """Draw the events of one session."""
    chance = draw(st.randoms(use_true_random=False))
    return live(chance, Teller(skew={node: chance.randint(-5, 5) * SECOND for node in NODES}))


def records(chance: Random, sessions: int, *, seconds: float) -> list[Record]:
    """Live many sessions: what the nodes write, each in the order of its numbers, in about the order of time.

    Args:
        chance: decides everything.
        sessions: how many.
        seconds: in which they are opened.
    """
    skew = {node: chance.randint(-2, 2) * SECOND for node in NODES}
    told: list[tuple[Fact, str | None]] = []
    for number in range(sessions):
        told += [(each, f"s{number}") for each in live(chance, Teller(skew=skew), chance.uniform(0, seconds))]
    clock = Teller(skew=skew)
    for node in NODES:
        for minute in range(int(seconds / 60) + 2):
            told.append((clock.tell(TRAFFIC_MEASURED.name, 60.0 * minute, node), None))
    told.sort(key=lambda each: each[0].at)
    numbers = {node: count(1) for node in NODES}
    return [record_of(fact._replace(number=next(numbers[fact.node])), session) for fact, session in told]


def record_of(fact: Fact, session: str | None) -> Record:
    """The event of which a fact is made."""
    told = {name: value for name, value in fact._asdict().items() if value is not None and name != "number"}
    own = {} if session is None else {"session": session}
    return {"version": VERSION, "id": f"{fact.incarnation}-{fact.number}", **own, **told}
