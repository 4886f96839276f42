"""The journal of a synthetic world: slices of events with their numbers, in the order in which streams hold them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gateway.core.journal import JOURNAL_PARTITIONS, events
from gateway.core.wire.codes import ErrorCode
from pipeline.generate.ledger import Ledger
from pipeline.generate.life import Lives
from pipeline.generate.nodes import Nodes
from pipeline.generate.population import Arrivals, Population
from pipeline.generate.rows import Rows, choose, join, length, rows, type_number, word
from pipeline.generate.units import HOUR, MILLISECOND, MINUTE, Numbers
from pipeline.generate.world import World, plan

FLUSH: Final = 100 * MILLISECOND
"""Between two appends of a node."""

EVENTS_PER_ENTRY: Final = 500
"""At most."""

EVENTS_PER_SLICE: Final = 400_000
"""About; some hundred bytes each, and enough that what numpy does once a slice does not count."""

EVENTS_PER_HOUR: Final = 40_000
"""Of a small cluster, so that what nodes tell once a minute does not outnumber what happens to sessions."""

SLICES: Final = (1, 2, 3, 5, 6, 10, 12, 15, 20, 30, 60)
"""Minutes of which an hour is a whole number, so that a file never holds two hours for long."""

MARGIN: Final = 3
"""The world is planned for so many times the length that was asked for, as chance may make events rarer."""

LEAST_NODES: Final = 3
"""Two may die shortly after each other, and somebody must take over."""

MOST_NODES: Final = 100
"""Far more than clusters have. A plan has all runs of all of them, and tells for each change who takes clients."""

GREATEST_SEED: Final = (1 << 63) - 1

SHORT: Final = 1 << 16
"""Runs whose numbers fit into sixteen bits."""

START: Final = 1_767_225_600_000_000
"""2026-01-01 00:00 UTC."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Which journal.

    Attributes:
        events: how many, exactly.
        seed: another seed, another journal.
        hours: in which about so many events happen.
        nodes: how many the cluster has, 3 to 100.
        begins: first instant, in microseconds since 1970; a whole hour.

    Raises:
        ValueError: one of them is out of range.
    """

    events: int
    seed: int = 1
    hours: float = 24.0
    nodes: int = 6
    begins: int = START

    def __post_init__(self) -> None:
        if self.events < 1:
            raise ValueError(f"a journal of {self.events} events is none; ask for 1 or more")
        if self.nodes < LEAST_NODES:
            raise ValueError(f"a cluster of {self.nodes} nodes cannot lose two; ask for {LEAST_NODES} or more")
        if self.nodes > MOST_NODES:
            raise ValueError(f"a plan for {self.nodes} nodes takes too long; ask for {MOST_NODES} or fewer")
        if not 1 <= self.hours <= 24 * 366:
            raise ValueError(f"{self.hours} hours are too short or too long; ask for 1 hour to a year")
        if self.begins % HOUR:
            raise ValueError("a journal begins with a full hour")
        if not 0 <= self.seed <= GREATEST_SEED:
            raise ValueError("a seed is a number from 0 to 2^63 - 1")

    @property
    def length(self) -> int:
        """How long it is about, in microseconds; whole minutes."""
        return round(self.hours * 60) * MINUTE


def usual_hours(events: int) -> float:
    """Tell in how many hours a cluster of some size has so many events: few make a short journal, many a busy day."""
    return float(np.clip(events / EVENTS_PER_HOUR, 1, 24))


@dataclass(frozen=True, slots=True)
class Slice:
    """Events of some time.

    Attributes:
        number: of the slice, from 0.
        world: whose runs the events name.
        rows: columns; beside what was told ``number`` (of the event's id), ``flush`` (when its node appended it),
            ``generation_of_entry``, ``entry`` (its sequence in the stream) and ``line``. In the order of streams,
            entries and lines.
    """

    number: int
    world: World
    rows: Rows


def slices(scale: Scale) -> Iterator[Slice]:
    """Generate a journal.

    Args:
        scale: which one.

    Yields:
        Its events, slice by slice. A slice is not older than what was flushed before.
    """
    # Whatever sessions do, some node tells once a minute what passed: the last event is there by then.
    needed = scale.events * MINUTE + HOUR
    world = plan(
        np.random.default_rng([scale.seed, 0]),
        begins=scale.begins,
        length=MARGIN * scale.length,
        needed=needed,
        nodes=scale.nodes,
    )
    population = Population()
    ledger = Ledger(population, len(world.runs))
    lives = Lives(world, population, ledger)
    nodes = Nodes(world, ledger)
    arrivals = Arrivals(scale.seed, begins=scale.begins, length=scale.length, events=scale.events)
    writer = _Writer(world, nodes)
    step = _slice_length(scale)
    missing, begin, number = scale.events, scale.begins, 0
    while missing:
        end = begin + step
        random = np.random.default_rng([scale.seed, 1, number])
        arrivals.come(population, random, begin, end)
        lives.live(random, end)
        table = writer.write([*ledger.told, *nodes.tell(random, begin, end)], begin, end)
        ledger.told = writer.take_later()
        table = _cut(table, missing)
        missing -= length(table)
        if length(table):
            yield Slice(number, world, writer.place(table))
        begin, number = end, number + 1


def _slice_length(scale: Scale) -> int:
    minutes = EVENTS_PER_SLICE * scale.length / scale.events / MINUTE
    if minutes >= SLICES[-1]:
        return HOUR
    return max(each for each in (1, *SLICES) if each <= max(minutes, 1)) * MINUTE


def _cut(table: Rows, count: int) -> Rows:
    """Keep the first *count* events in the order in which they were flushed; of each run they are the first, too."""
    if length(table) <= count:
        return table
    order = np.lexsort((table["number"], table["at"], table["flush"]))
    return choose(table, np.sort(order[:count]))


class _Writer:
    """Numbers events, loses some of them, and puts them into entries, as nodes do."""

    def __init__(self, world: World, nodes: Nodes) -> None:
        self._world = world
        self._streams = nodes.streams
        self._numbers = np.zeros(len(world.runs), np.int64)
        self._sequences = np.zeros(JOURNAL_PARTITIONS, np.int64)
        self._generation = 1
        self._later: list[Rows] = []
        self._waiting: Rows = {}
        self._lost = np.zeros(len(world.losses), np.int64)
        self._ends = world.times("ends")
        self._killed = world.times("killed").astype(bool)
        self._hangs, self._wakes = world.times("hangs"), world.times("wakes")
        self._phases = (np.arange(len(world.runs)) * 61 % 97) * FLUSH // 97

    def write(self, told: list[Rows], begin: int, end: int) -> Rows:
        """Number what happened from *begin* to *end*, and return what was flushed before *end*."""
        table = join([*told, *self._losses_told(begin, end)])
        later = table["at"] >= end
        self._later = [choose(table, later)] if later.any() else []
        table = choose(table, ~later)
        order = np.argsort(table["at"], kind="stable")
        run = table["run"][order]
        # Sixteen bits are sorted several times as fast.
        order = order[np.argsort(run.astype(np.uint16) if len(self._numbers) <= SHORT else run, kind="stable")]
        table = choose(table, order)
        self._number(table)
        table = self._lose(table)
        table["flush"] = self._flushed(table)
        # The last events of a node that died never left it.
        run = table["run"]
        table = choose(table, ~(self._killed[run] & (table["flush"] >= self._ends[run])))
        table = join([self._waiting, table])
        waits = table["flush"] >= end
        self._waiting = choose(table, waits)
        return choose(table, ~waits)

    def take_later(self) -> list[Rows]:
        """Return what was told of later instants."""
        later, self._later = self._later, []
        return later

    def place(self, table: Rows) -> Rows:
        """Put flushed events into entries of their streams."""
        stream, run, flush = table["stream"], table["run"], table["flush"]
        order = np.lexsort((table["number"], run, flush, stream))
        table = choose(table, order)
        stream, run, flush = table["stream"], table["run"], table["flush"]
        new = np.ones(len(order), bool)
        new[1:] = (stream[1:] != stream[:-1]) | (flush[1:] != flush[:-1]) | (run[1:] != run[:-1])
        line = _count_from(new)
        new |= line % EVENTS_PER_ENTRY == 0
        table["line"] = _count_from(new)
        self._sequence(table, new)
        return table

    def _sequence(self, table: Rows, new: NDArray[np.bool_]) -> None:
        """Number entries as Redis does: from 0 again in every generation of the grid."""
        ends = [outage.ends for outage in self._world.outages if outage.lost_writes]
        generation = 1 + np.searchsorted(np.array(ends, np.int64), table["flush"], side="right")
        table["generation_of_entry"] = generation
        table["entry"] = np.zeros(length(table), np.int64)
        for each in np.unique(generation):
            if each != self._generation:
                self._generation = int(each)
                self._sequences[:] = 0
            those = generation == each
            stream, first = table["stream"][those], new[those]
            before = np.cumsum(first)
            starts = np.searchsorted(stream, np.arange(JOURNAL_PARTITIONS + 1))
            # Entries of all streams before that in which a stream's rows begin.
            base = np.concatenate(([0], before))[starts]
            table["entry"][those] = before - 1 - base[stream] + self._sequences[stream]
            self._sequences += np.diff(base)

    def _number(self, table: Rows) -> None:
        run = table["run"]
        starts = np.searchsorted(run, np.arange(len(self._numbers) + 1))
        counts = np.diff(starts)
        table["number"] = np.arange(len(run)) - starts[run] + self._numbers[run] + 1
        self._numbers += counts

    def _lose(self, table: Rows) -> Rows:
        for place, loss in enumerate(self._world.losses):
            missing = (table["run"] == loss.run) & (table["at"] >= loss.since) & (table["at"] < loss.until)
            if missing.any():
                self._lost[place] += missing.sum()
                table = choose(table, ~missing)
        told = table["type"] == type_number(events.EVENTS_DROPPED)
        for row in np.flatnonzero(told):
            table["count"][row] = self._lost[table["count"][row]]
        return table

    def _losses_told(self, begin: int, end: int) -> list[Rows]:
        """What a run tells when it can write again; how many events are missing is put in when it is known."""
        told = []
        for place, loss in enumerate(self._world.losses):
            if begin <= loss.until < end:
                told.append(
                    rows(
                        events.EVENTS_DROPPED, np.array([loss.until]), loss.run, stream=int(self._streams[loss.run]),
                        count=place, since=loss.since, until=loss.until, reason=word(ErrorCode.GRID_UNAVAILABLE),
                    )
                )  # fmt: skip
        return told

    def _flushed(self, table: Rows) -> Numbers:
        """Tell when each event left its node: with the next append that reaches the grid."""
        run, at = table["run"], table["at"]
        asleep = (self._hangs[run] <= at) & (at < self._wakes[run])
        at = np.where(asleep, self._wakes[run], at)
        phase = self._phases[run]
        flush = (at - phase) // FLUSH * FLUSH + FLUSH + phase
        for outage in self._world.outages:
            held = (flush >= outage.begins) & (flush < outage.ends)
            flush = np.where(held, outage.ends + phase, flush)
        return flush


def _count_from(new: NDArray[np.bool_]) -> Numbers:
    """Count on from 0 at every True."""
    places = np.arange(len(new))
    return places - np.maximum.accumulate(np.where(new, places, 0))
