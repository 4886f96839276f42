"""What happens to the nodes and the grid of a synthetic journal, planned before the first session arrives."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import cycle
from typing import Final

import numpy as np

from pipeline.generate.units import MILLISECOND, MINUTE, NEVER, SECOND, Numbers, Times

LEASE: Final = 6 * SECOND
LEASE_RENEW: Final = 2 * SECOND
"""As nodes have it by default: a node that dies is noticed four to six seconds later."""

DRAIN: Final = 20 * SECOND
"""How long a node moves its clients before it stops."""

RESTART: Final = 8 * SECOND
"""Until the next run of a node that was stopped as planned."""

DEPLOY_STEP: Final = 45 * SECOND
"""Between two nodes of a rolling deploy."""

REPAIR: Final = 50 * SECOND
"""Until a node that died is started again, at least."""

PAUSE: Final = 25 * SECOND
"""How long a node hangs, longer than its lease."""

OUTAGE: Final = 8 * SECOND
"""How long the grid is unreachable, at least."""

FIRST_ACT: Final = 3 * MINUTE
"""Before it, the cluster fills."""

SHORTEST_BREAK: Final = 6 * MINUTE
LONGEST_BREAK: Final = 80 * MINUTE
"""Between two things that go wrong."""

ACTS_PER_PLAN: Final = 24
"""Things that go wrong in a plan whose length lies between what these breaks allow."""

ACTS: Final = ("death", "reset", "deploy", "outage", "pause", "deaths", "reset", "death")
"""What goes wrong, in turn: a node dies; a proxy cuts all connections; a release is rolled out; the grid is
unreachable; a node hangs for longer than its lease; two nodes die shortly after each other."""


@dataclass(slots=True)
class Run:
    """One incarnation of a node.

    Attributes:
        node: number of the node, from 1.
        release: number of the release, from 0.
        begins: when it accepts connections.
        ends: when it dies or has stopped.
        drains: when it begins to drain.
        killed: whether it dies.
        hangs: when it hangs, if it does.
        wakes: when that is over.
        expires: when survivors notice that its lease has expired.
        lived: when it renewed its lease for the last time before that.
        heir: number of the run that puts its sessions on the clock.
    """

    node: int
    release: int
    begins: int
    ends: int = NEVER
    drains: int = NEVER
    killed: bool = False
    hangs: int = NEVER
    wakes: int = NEVER
    expires: int = NEVER
    lived: int = NEVER
    heir: int = -1

    def takes_clients(self, at: int) -> bool:
        """Tell whether new connections reach it."""
        return self.begins <= at < min(self.ends, self.drains) and not self.hangs <= at < self.wakes


@dataclass(frozen=True, slots=True)
class Outage:
    """The grid is unreachable from ``begins`` to ``ends``; ``lost_writes`` if it came back with less than it had."""

    begins: int
    ends: int
    lost_writes: bool


@dataclass(frozen=True, slots=True)
class Loss:
    """A run could not write its events from ``since`` to ``until``."""

    run: int
    since: int
    until: int


@dataclass(slots=True)
class World:
    """The plan.

    Attributes:
        begins: when the first nodes start.
        runs: all incarnations, in the order in which they begin.
        outages: of the grid.
        resets: when a proxy cut all connections.
        losses: of events.
        changes: instants between which the same runs take clients.
        takers: runs that take clients from the change of the same place on; a row for each, filled up with -1.
        counts: how many each row of ``takers`` names.
    """

    begins: int
    runs: list[Run] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    resets: list[int] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    changes: Times = field(default_factory=lambda: np.empty(0, np.int64))
    takers: Numbers = field(default_factory=lambda: np.empty((0, 0), np.int64))
    counts: Numbers = field(default_factory=lambda: np.empty(0, np.int64))

    def times(self, name: str) -> Times:
        """Return one attribute of all runs as an array."""
        return np.array([getattr(run, name) for run in self.runs], dtype=np.int64)

    def taking(self, at: Times) -> tuple[Numbers, Numbers]:
        """Tell which runs take clients at each of these instants: rows of ``takers``, and how many each has."""
        rows = np.searchsorted(self.changes, at, side="right") - 1
        return self.takers[rows], self.counts[rows]


def plan(random: np.random.Generator, *, begins: int, length: int, needed: int, nodes: int) -> World:
    """Plan a world.

    Args:
        random: to draw from.
        begins: first instant.
        length: of the whole, by which things go wrong more or less often; nothing happens to nodes later.
        needed: what is planned of it: nobody looks at what comes later.
        nodes: how many, at least three.
    """
    world = World(begins)
    current = [_start(world, each, 0, begins + int(random.integers(0, SECOND))) for each in range(1, nodes + 1)]
    gap = int(np.clip(length / ACTS_PER_PLAN, SHORTEST_BREAK, LONGEST_BREAK))
    at = begins + FIRST_ACT
    for act in cycle(ACTS):
        at += int(gap * random.uniform(0.7, 1.3))
        if at >= begins + min(length, needed):
            break
        at = _perform(world, act, random, at, current)
    _who_takes_clients(world)
    return world


def _perform(world: World, act: str, random: np.random.Generator, at: int, current: list[int]) -> int:
    """Let one thing go wrong, and return when it is over."""
    if act == "reset":
        world.resets.append(at)
        return at
    if act == "outage":
        ends = at + OUTAGE + int(random.integers(0, 2 * OUTAGE))
        world.outages.append(Outage(at, ends, lost_writes=len(world.outages) % 2 == 1))
        full = int(random.choice(current))
        world.losses.append(Loss(full, ends - OUTAGE // 4, ends))
        return ends
    if act == "deploy":
        for place in range(len(current)):
            run = world.runs[current[place]]
            run.drains = at
            run.ends = at + DRAIN
            current[place] = _start(world, run.node, run.release + 1, run.ends + RESTART)
            at += DEPLOY_STEP
        return at
    fit = [place for place, run in enumerate(current) if world.runs[run].hangs == NEVER]
    first, second = (int(each) for each in random.choice(fit, 2, replace=False))
    heirs = [run for place, run in enumerate(current) if place not in {first, second}]
    victims = [(first, at)]
    if act == "deaths":
        victims.append((second, at + int(random.integers(3 * SECOND, 20 * SECOND))))
    for place, dies in victims:
        run = world.runs[current[place]]
        run.lived = dies - int(random.integers(0, LEASE_RENEW))
        run.expires = run.lived + LEASE + int(random.integers(100 * MILLISECOND, SECOND))
        run.heir = int(random.choice(heirs))
        if act == "pause":
            run.hangs, run.wakes = dies, dies + PAUSE
            at = run.wakes
        else:
            run.ends, run.killed = dies, True
            again = dies + REPAIR + int(random.integers(0, REPAIR))
            current[place] = _start(world, run.node, run.release, again)
            at = max(at, again)
    return at


def _start(world: World, node: int, release: int, at: int) -> int:
    world.runs.append(Run(node, release, at))
    return len(world.runs) - 1


def _who_takes_clients(world: World) -> None:
    concerned: dict[int, set[int]] = {world.begins: set()}
    for number, run in enumerate(world.runs):
        for at in (run.begins, run.ends, run.drains, run.hangs, run.wakes):
            concerned.setdefault(at, set()).add(number)
    changes = sorted(concerned)
    takers: list[list[int]] = []
    taking: set[int] = set()
    for at in changes:
        taking -= concerned[at]
        taking |= {number for number in concerned[at] if world.runs[number].takes_clients(at)}
        takers.append(sorted(taking))
    width = max(map(len, takers))
    # Before the first node has started, clients find the first one as soon as it has.
    takers = [row or [0] for row in takers]
    world.changes = np.array(changes, dtype=np.int64)
    world.counts = np.array([len(row) for row in takers], dtype=np.int64)
    world.takers = np.array([row + [-1] * (width - len(row)) for row in takers], dtype=np.int64)
