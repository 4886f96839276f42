"""Lives of sessions for tests: what happened, who told it, and by which clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

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


@st.composite
def lives(draw: st.DrawFn) -> list[Fact]:
    """Draw the events of one session, as they are written: clocks that differ, and events that are missing."""
    skew = {node: draw(st.integers(-5, 5)) * SECOND for node in NODES}
    teller = Teller(skew=skew)
    now = 0.0
    node = draw(st.sampled_from(NODES))
    teller.opened(now, node, window_ms=draw(st.sampled_from([None, 1_000, 60_000])))
    epoch = 1
    for _ in range(draw(st.integers(0, 4))):
        now += draw(st.integers(0, 20))
        match draw(st.sampled_from(["lost", "slow", "died", "silent"])):
            case "lost":
                teller.disconnected(now, node, epoch, cause=draw(st.sampled_from([None, "going_away"])), deduplicated=1)
            case "slow":
                teller.tell(SLOW_CLOSED, now, node, epoch)
                if draw(st.booleans()):
                    teller.disconnected(now, node, epoch, cause="slow_consumer")
            case "died":
                survivor = draw(st.sampled_from([each for each in NODES if each != node]))
                teller.orphaned(now + 2, survivor, node, epoch, since=now - 1, until=now + 1)
        gone = now
        now += draw(st.integers(0, 20))
        if draw(st.booleans()):
            teller.tell(REFUSED, now, draw(st.sampled_from(NODES)), epoch, reason="stale_attempt")
        previous, node = node, draw(st.sampled_from(NODES))
        epoch += 1
        away_ms = draw(st.sampled_from([None, round((now - gone) * 1000), -1, 10**12, 10**6]))
        teller.resumed(
            now, node, epoch, peer=previous, away_ms=away_ms, resent=1, lost=draw(st.sampled_from([None, 2]))
        )
        if previous != node and draw(st.booleans()):
            teller.tell(FENCED, now + 1, previous, epoch - 1)
    if draw(st.booleans()):
        teller.tell(
            draw(st.sampled_from([CLOSED, EXPIRED])), now + draw(st.integers(0, 90)), node, epoch, reason="done"
        )
    dropped = draw(st.sets(st.integers(0, len(teller.facts) - 1)))
    kept = [each for index, each in enumerate(teller.facts) if index not in dropped]
    return kept or teller.facts
