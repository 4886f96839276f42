"""How soon a failure is detected, and how often a living node is suspected: ``python -m benchmarks.detection``.

A simulation in virtual time of the very machine that nodes use (``gateway.core.pacing.suspicion``), because the answer
needs weeks of a cluster and a hundred nodes. What nodes and networks do wrong is made up (``World``), and said so
beside the figures: it is the proportions that hold elsewhere, and not the numbers.

A node suspects another one that it does not hear. It counts as failed when its lease has ended in the grid, by which
time it can do nothing any more; a living node loses its lease by a pause that is longer than what is left of it.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Final

from gateway.core.pacing.suspicion import Suspicions
from gateway.core.types import Incarnation, NodeId, NodeRef

NODES: Final = (3, 10, 100)
"""Sizes of clusters."""

PATIENCES: Final = (2, 3, 4, 6, 10)
"""Values of ``suspect_after`` that are shown."""

HEARTBEATS: Final = (0.25, 0.5, 1.0)
"""Values of ``heartbeat``, in seconds."""

LEASES: Final = ((3.0, 1.0), (6.0, 2.0), (12.0, 4.0))
"""Values of ``lease`` and ``lease_renew``, in seconds."""

LOOKS: Final = 4
"""Looks of a node in a heartbeat, as ``gateway.app.cluster.takeover.suspicion`` does."""

HOUR: Final = 3600.0
HEADINGS: Final = (
    "| nodes | `heartbeat` | `suspect_after` | `lease` | suspected after | failed after | without suspicion | "
    "false suspicions an hour | leases of living nodes that end, an hour |"
)
"""Of the table."""
PICTURE: Final = Path("docs/explanation/figures/failure-detection.svg")
ONE: Final = NodeRef(NodeId("observed"), Incarnation("1"))


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What nodes and networks do wrong. Made up, after what virtual machines and busy containers show.

    Attributes:
        pause_every: seconds between two pauses of a node, on average: it gets no core, or collects garbage.
        pause: median of their lengths in seconds.
        pause_spread: of the logarithm of their lengths; 1 in 100 is ten times as long as the median then.
        delay: of a heartbeat on its way, in seconds.
        loss: share of heartbeats that are lost, and sent again by TCP.
        again: seconds after which they are.
        step: seconds of a round trip to the grid.
    """

    pause_every: float = 600.0
    pause: float = 0.3
    pause_spread: float = 1.0
    delay: float = 0.001
    loss: float = 0.001
    again: float = 0.2
    step: float = 0.001

    def pauses(self, seconds: float, chance: random.Random) -> Iterator[tuple[float, float]]:
        """Yield when pauses begin, and how long they are."""
        at = chance.expovariate(1 / self.pause_every)
        while at < seconds:
            length = self.pause * math.exp(chance.gauss(0.0, self.pause_spread))
            yield at, length
            at += length + chance.expovariate(1 / self.pause_every)

    def arrives(self, chance: random.Random) -> float:
        """Tell how long a heartbeat takes."""
        return self.delay + (self.again if chance.random() < self.loss else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """The settings of those names, in seconds and heartbeats."""

    heartbeat: float = 0.5
    suspect_after: int = 3
    confirm: float = 0.5
    lease: float = 6.0
    lease_renew: float = 2.0

    def machine(self) -> Suspicions:
        """Make what a node thinks of another one."""
        return Suspicions(heartbeat=self.heartbeat, suspect_after=self.suspect_after, confirm=self.confirm)


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """What was wrongly thought of one living node by another one.

    Attributes:
        suspected: times an hour that it was suspected.
        failed: times an hour that its lease ended although it lived.
    """

    suspected: float
    failed: float


@cache
def false_alarms(intervals: Intervals, world: World, *, hours: float, seed: int = 0) -> FalseAlarms:
    """Let one node hear another one that lives, and pauses, for so many *hours*.

    It is the same for all sizes of a cluster. Only the time around pauses is played, and around heartbeats that were
    lost: nothing happens in between.
    """
    chance = random.Random(seed)
    suspected = failed = 0
    beat, look = intervals.heartbeat, intervals.heartbeat / LOOKS
    for at, length in world.pauses(hours * HOUR, chance):
        machine = intervals.machine()
        machine.follow({ONE})
        # The node speaks every heartbeat; what it says before the pause is the last for a while.
        last = at - chance.random() * beat
        ends = at + length
        now = last - beat + chance.random() * look
        arrivals = [last - beat + world.arrives(chance), last + world.arrives(chance), ends + world.arrives(chance)]
        while now <= ends + 2 * beat:
            heard = max((each for each in arrivals if each <= now), default=None)
            suspected += len(machine.observe({} if heard is None else {ONE: heard}, now).suspected)
            now += look
        # Renewed at some time before, by chance; a renewal that was due in the pause comes when it ends.
        left = intervals.lease - chance.random() * intervals.lease_renew * 1.1
        failed += length > left
    for _ in range(round(hours * HOUR / beat * world.loss)):
        gap = beat + world.again + world.delay
        suspected += gap >= intervals.suspect_after * beat + look
    return FalseAlarms(suspected / hours, failed / hours)


@dataclass(frozen=True, slots=True)
class Detected:
    """When a death was noticed, in seconds after it.

    Attributes:
        suspected: by the first of the others.
        failed: when the first of them knew from the grid that the lease had ended.
        without: when the first of them would have known without suspicion, with its next renewal.
    """

    suspected: float
    failed: float
    without: float


def death(intervals: Intervals, world: World, *, nodes: int, chance: random.Random) -> Detected:
    """Let a node die under the eyes of the others."""
    ends = intervals.lease - chance.random() * intervals.lease_renew * (0.9 + 0.2 * chance.random())
    last = -chance.random() * intervals.heartbeat
    suspected, failed, without = math.inf, math.inf, math.inf
    for _ in range(nodes - 1):
        machine = intervals.machine()
        machine.follow({ONE})
        heard = last + world.arrives(chance)
        now = chance.random() * intervals.heartbeat / LOOKS
        machine.observe({ONE: min(heard, now)}, now - intervals.heartbeat / LOOKS)
        while True:
            if machine.observe({ONE: heard} if heard <= now else {}, now).suspected:
                suspected = min(suspected, now)
            if machine.due(now):
                answered = now + world.step
                if machine.looked(ONE, ends - now - world.step / 2, answered):
                    failed = min(failed, answered)
                    break
            look = machine.next_look()
            pause = intervals.heartbeat / LOOKS
            now += pause if look is None else max(world.step, min(pause, look - now))
        without = min(without, ends + chance.random() * intervals.lease_renew + world.step)
    return Detected(suspected, min(failed, without), without)


@dataclass(frozen=True, slots=True)
class Row:
    """What was found for one choice of intervals and one size of cluster.

    Attributes:
        intervals: as chosen.
        nodes: of the cluster.
        suspected: median seconds until the first node suspects a dead one.
        detected: median seconds until the grid has confirmed it.
        without: the same without suspicion.
        false_suspicions: of living nodes, an hour in the whole cluster.
        false_failures: leases that ended of living nodes, an hour in the whole cluster.
    """

    intervals: Intervals
    nodes: int
    suspected: float
    detected: float
    without: float
    false_suspicions: float
    false_failures: float


def measure(intervals: Intervals, *, nodes: int, hours: float, deaths: int, world: World) -> Row:
    """Find out what a choice of intervals means for a cluster."""
    chance = random.Random(nodes)
    found = [death(intervals, world, nodes=nodes, chance=chance) for _ in range(deaths)]
    wrong = false_alarms(intervals, world, hours=hours)
    return Row(
        intervals,
        nodes,
        suspected=median(each.suspected for each in found),
        detected=median(each.failed for each in found),
        without=median(each.without for each in found),
        # Everybody hears everybody, and a node that pauses is not heard by all others.
        false_suspicions=wrong.suspected * nodes * (nodes - 1),
        false_failures=wrong.failed * nodes,
    )


def rows(*, hours: float, deaths: int, world: World) -> list[Row]:
    """Measure all choices that are shown: first of heartbeats, then of leases."""
    chosen = [Intervals(heartbeat=beat, suspect_after=n) for beat in HEARTBEATS for n in PATIENCES]
    chosen += [Intervals(lease=lease, lease_renew=renew) for lease, renew in LEASES]
    return [
        measure(each, nodes=nodes, hours=hours, deaths=max(1, deaths // (1 + nodes // max(NODES) * 4)), world=world)
        for nodes in NODES
        for each in chosen
    ]


def table(found: Sequence[Row]) -> str:
    """Write rows as a table of a document."""
    lines = [
        HEADINGS,
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {row.nodes} | {row.intervals.heartbeat:g} s | {row.intervals.suspect_after} | {row.intervals.lease:g} s | "
        f"{row.suspected:.2f} s | {row.detected:.2f} s | {row.without:.2f} s | {row.false_suspicions:.3g} | "
        f"{row.false_failures:.2g} |"
        for row in found
    ]
    return "\n".join(lines)


def draw(found: Sequence[Row], file: Path) -> None:
    """Draw detection against false suspicions, and against leases."""
    from charts import BLUE, COLOURS, GREY, VERMILION, drawing  # noqa: PLC0415 - matplotlib takes a second to load

    default = Intervals()
    with drawing(file, height=7.2) as figure:
        above, below = figure.subplots(2, 1)
        markers = dict(zip(HEARTBEATS, "o^s", strict=True))
        for nodes, colour in zip(NODES, COLOURS, strict=False):
            for beat, marker in markers.items():
                chosen_here = {
                    row.intervals.suspect_after: row
                    for row in found
                    if (row.nodes, row.intervals.heartbeat, row.intervals.lease) == (nodes, beat, default.lease)
                }
                line = list(chosen_here.values())
                above.plot(
                    [row.suspected for row in line],
                    [max(row.false_suspicions, 1e-3) for row in line],
                    color=colour,
                    marker=marker,
                    label=f"{nodes} nodes, heartbeat {beat:g} s",
                )
        above.set_yscale("log")
        above.set_xlabel("seconds until a dead node is suspected (points: suspect_after 2, 3, 4, 6, 10)")
        above.set_ylabel("false suspicions an hour, whole cluster")
        above.legend(fontsize=7, ncols=3)
        width = 0.35
        leases = [(lease, nodes) for lease, _ in LEASES for nodes in NODES]
        chosen = {
            (row.intervals.lease, row.nodes): row
            for row in found
            if (row.intervals.heartbeat, row.intervals.suspect_after) == (default.heartbeat, default.suspect_after)
        }
        places = range(len(leases))
        below.bar(
            [place - width / 2 for place in places],
            [chosen[each].detected for each in leases],
            width,
            color=BLUE,
            label="with suspicion",
        )
        below.bar(
            [place + width / 2 for place in places],
            [chosen[each].without for each in leases],
            width,
            color=GREY,
            label="by renewals alone",
        )
        for place, each in zip(places, leases, strict=True):
            wrong = chosen[each].false_failures
            below.annotate(f"{wrong:.2g}/h", (place, chosen[each].without), ha="center", color=VERMILION, fontsize=8)
        below.set_xticks(list(places), [f"lease {lease:g} s\n{nodes} nodes" for lease, nodes in leases], fontsize=7)
        below.set_ylabel("seconds until it has failed")
        below.legend(fontsize=8)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, draw and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detection", description=__doc__)
    parser.add_argument("--hours", type=float, default=200.0, help="of one pair of nodes, for false suspicions")
    parser.add_argument("--deaths", type=int, default=200, help="for the time of detection")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="SVG to write")
    given = parser.parse_args(arguments)
    found = rows(hours=given.hours, deaths=given.deaths, world=World())
    draw(found, given.picture)
    print(table(found))


if __name__ == "__main__":
    main()
