"""How runs are exported: each once, though it be held in two places, and its bodies as bytes (see ``byte_form``).

A run is a row: the place of its text, its topics and the sizes of its bodies; one that took the place of others has the
place of the update, and what its mark counts, besides. A restored run is grouped as the exported one was, because that
decides how messages are cut (``messages.compose``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.core.stream.byte_form import Bodies, Record
from gateway.core.stream.runs import FoldedRun, Outgoing, Run
from gateway.core.types import JsonValue
from gateway.core.wire import codec

RUNS: Final = "runs"
"""The field of a record in which runs are."""

_PLAIN: Final = 3
"""Elements of the row of a run."""

_FOLDED: Final = 5
"""Elements of the row of one that took the place of others."""


class RunWriter:
    """Writes the runs of a record.

    Args:
        bodies: of the record.

    Attributes:
        rows: what has been written, for the field ``RUNS``.
    """

    __slots__ = ("_bodies", "_places", "rows")

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._places: dict[int, tuple[int, Run]] = {}
        """By identity, with the run, so that it stays and no other one gets its identity."""
        self.rows: list[JsonValue] = []

    def put(self, runs: Iterable[Run]) -> list[JsonValue]:
        """Write some runs; returns their places among all."""
        return [self._put(run) for run in runs]

    def _put(self, run: Run) -> int:
        if id(run) not in self._places:
            self._places[id(run)] = len(self.rows), run
            self.rows.append(write_run(run, self._bodies))
        return self._places[id(run)][0]


class RunReader:
    """Reads the runs of a record.

    Args:
        record: what was written.

    Raises:
        InvalidExport: by this and by its method: it is not of that form.
    """

    __slots__ = ("_record", "_runs")

    def __init__(self, record: Record) -> None:
        self._record = record
        self._runs = [read_run(row, record) for row in record.rows(RUNS)]

    def get(self, name: str) -> list[Run]:
        """Return the runs whose places are in a field."""
        places = self._record.integers(name)
        if places and max(places) >= len(self._runs):
            self._record.fail(name, f"places of {len(self._runs)} runs")
        return [self._runs[place] for place in places]


def write_run(run: Run, bodies: Bodies) -> list[JsonValue]:
    """Write the row of a run.

    Args:
        run: which.
        bodies: of the record, to which those of the run are added.
    """
    if isinstance(run, FoldedRun):
        update = run.update
        place = bodies.put(update.body)
        return [place, [update.topic], [len(update.body)], run.folded, run.snapshot]
    return [bodies.put(run.text), list(run.topics), list(run.sizes)]


def read_run(row: JsonValue, record: Record) -> Run:
    """Read the row of a run from the field ``RUNS`` of a record.

    Raises:
        InvalidExport: it is nothing of the kind.
    """
    # Not by patterns: they take as long as all the rest, and there may be a thousand rows.
    if isinstance(row, list) and len(row) in {_PLAIN, _FOLDED}:
        text = record.body(RUNS, row[0])
        topics, sizes = row[1], row[2]
        if isinstance(topics, list) and isinstance(sizes, list) and len(topics) == len(sizes):
            run = _folded(topics, text, *row[_PLAIN:]) if len(row) == _FOLDED else _plain(topics, sizes, text)
            if run is not None:
                return run
    return record.fail(RUNS, "a list of runs")


def _folded(topics: list[JsonValue], update: bytes, folded: JsonValue, snapshot: JsonValue) -> Run | None:
    (topic,) = topics if len(topics) == 1 else (None,)
    if not isinstance(topic, str) or not isinstance(folded, int) or folded < 1 or not isinstance(snapshot, bool):
        return None
    return FoldedRun(Outgoing(topic, update), folded, snapshot=snapshot)


def _plain(topics: list[JsonValue], sizes: list[JsonValue], text: bytes) -> Run | None:
    names = [each for each in topics if each is None or isinstance(each, str)]
    if len(names) != len(topics) or not names:
        return None
    if len(names) == 1:  # as nearly always
        return Run((Outgoing(names[0], text),)) if sizes == [len(text)] else None
    lengths = [each for each in sizes if type(each) is int and each >= 0]
    if len(lengths) != len(sizes):
        return None
    run = Run(tuple(map(Outgoing, names, codec.apart(text, lengths))))
    return run if run.text == text else None
