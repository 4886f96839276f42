"""The Data Source ``gateway_journal`` for Spark, streaming: which entries there are to read, and ``read_range``.

A micro-batch is a list of ranges, a row for each stream, and not the entries themselves: whoever works on them reads
them in its own task, so that no event goes through the JVM (ADR 0130).

```python
spark.dataSource.register(JournalSource)
ranges = spark.readStream.format("gateway_journal").options(**source_options(place, batch_entries=2_000, ...)).load()
```
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from gateway.core.journal import JOURNAL_PARTITIONS
from pipeline.columns import arrow_schema
from pipeline.errors import NotReady, PipelineError
from pipeline.source.journal import PAGE_ENTRIES, Journal, JournalPlace
from pipeline.source.offsets import (
    ACCEPT_LOSS,
    START,
    EntryId,
    Position,
    Positions,
    cap,
    next_end,
    offset_of,
    position_of,
    positions_of,
    refuse_gaps,
    trim_before,
    what_is_gone,
)
from pipeline.source.parsing import Entry, lines_of

NAME: Final = "gateway_journal"

RANGES: Final = StructType(
    [
        StructField("stream", IntegerType(), nullable=False),
        StructField("after", StringType(), nullable=False),
        StructField("until", StringType(), nullable=False),
    ]
)
"""What the Data Source gives: a row for each stream in which there is something to read, see ``EntryRange``."""

BATCH_BYTES: Final = 4 << 20
"""Of lines that are made columns at once: some ten thousand, enough for columns to pay."""

_MOST_PAGE_ENTRIES: Final = 2_000
"""Entries that are read at once where they turn out to be small, so that reading them takes few questions."""

_RANGES: Final = arrow_schema(RANGES)

_OPTIONS: Final = ("gridUrl", "prefix", "timeout", "batchEntries", "trimLag", "reader", "start", "parts")


def source_options(
    place: JournalPlace,
    *,
    batch_entries: int,
    trim_lag: int,
    reader: str,
    start: Positions = START,
    parts: int = JOURNAL_PARTITIONS,
) -> dict[str, str]:
    """Make the options of the source.

    Args:
        place: where the journal is. Spark hides options that have ``url`` in their name wherever it shows a plan.
        batch_entries: entries of one stream that are read in one micro-batch.
        trim_lag: entries to keep in each stream behind what is committed.
        reader: under which name to commit; empty to commit nothing.
        start: where a stream without a checkpoint begins.
        parts: tasks of a micro-batch at most, which share the streams.
    """
    return {
        "gridUrl": place.grid,
        "prefix": place.prefix,
        "timeout": str(place.timeout),
        "batchEntries": str(batch_entries),
        "trimLag": str(trim_lag),
        "reader": reader,
        "start": json.dumps(offset_of(start)),
        "parts": str(parts),
    }


@dataclass(frozen=True, slots=True)
class _Options:
    """The options, read."""

    place: JournalPlace
    batch_entries: int
    trim_lag: int
    reader: str
    start: Positions
    parts: int


def _read_options(options: Mapping[str, str]) -> _Options:
    if missing := [name for name in _OPTIONS if name not in options]:
        raise PipelineError(f"the source {NAME} needs the options {', '.join(missing)}; source_options makes them all")
    return _Options(
        place=JournalPlace(options["gridUrl"], options["prefix"], float(options["timeout"])),
        batch_entries=int(options["batchEntries"]),
        trim_lag=int(options["trimLag"]),
        reader=options["reader"],
        start=positions_of(json.loads(options["start"])),
        parts=int(options["parts"]),
    )


@dataclass(frozen=True, slots=True)
class EntryRange:
    """Entries of one stream, to be read by one task.

    Attributes:
        stream: which.
        after: the entry before the first, and the incarnation that the stream had; empty if it was never read.
        until: up to where, and the incarnation that it must have.
    """

    stream: int
    after: Position
    until: Position

    def row(self) -> dict[str, Any]:
        """Write it as a row of RANGES."""
        return {"stream": self.stream, "after": str(self.after), "until": str(self.until)}

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Read what ``row`` wrote."""
        return cls(row["stream"], position_of(row["after"]), position_of(row["until"]))


@dataclass(frozen=True, eq=False)
class Part(InputPartition):
    """What one task reads.

    Attributes:
        ranges: of different streams.
    """

    ranges: tuple[EntryRange, ...]


class JournalSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> StructType:
        """A row for each stream in which there is something to read."""
        return RANGES

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
        """For streaming queries."""
        return _Stream(_read_options(self.options))


def ranges(start: Positions, end: Positions) -> list[EntryRange]:
    """Make a range of each stream in which there is something to read."""
    return [EntryRange(stream, start[stream], end[stream]) for stream in sorted(end) if end[stream] != start[stream]]


def read_range(place: JournalPlace, part: EntryRange) -> Iterator[pa.RecordBatch]:
    """Read the entries of a range.

    Yields:
        The lines of some entries, with the columns of ``records.ARROW``.

    Raises:
        NotReady: some of them are gone.
        PipelineError: the grid cannot be reached.
    """
    waiting: list[Entry] = []
    size, count, after = 0, PAGE_ENTRIES, part.after.entry
    with Journal(place) as journal:
        while True:
            state, page = journal.page(part.stream, after, part.until.entry, count)
            # Before the first page of a stream that was never read, whatever is gone was never promised.
            known = part.after.incarnation or after != part.after.entry
            position = Position(part.until.incarnation if known else "", after)
            if (gone := what_is_gone(position, state)) is not None or state.incarnation != part.until.incarnation:
                gone = gone or "was emptied while it was read"
                raise NotReady(f"stream {part.stream} of the journal {gone}; {ACCEPT_LOSS}")
            if not page:
                break
            after = page[-1][0]
            sizes = [sum(map(len, fields.values())) for _, fields in page]
            for each, bytes_ in zip(page, sizes, strict=True):
                waiting.append(each)
                size += bytes_
                if size >= BATCH_BYTES:
                    yield lines_of(waiting, part.stream, part.until.incarnation)
                    waiting, size = [], 0
            count = min(2 * count, _MOST_PAGE_ENTRIES) if sum(sizes) < BATCH_BYTES // 4 else PAGE_ENTRIES
    if waiting:
        yield lines_of(waiting, part.stream, part.until.incarnation)


def _plan(journal: Journal, start: Positions, limit: int | None) -> dict[int, Position]:
    """Choose up to where to read every stream.

    Raises:
        NotReady: something is gone.
    """
    states = journal.states()
    refuse_gaps(start, states)
    result = {}
    for stream, position in start.items():
        state = states[stream]
        waiting = state.last > position.entry and state.first is not None
        following = journal.following(stream, position.entry) if waiting else None
        result[stream] = next_end(position, state, following, limit)
    return result


class _Stream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on and on; see ``DataSourceStreamReader``. Spark keeps one in a Python of its own, beside the driver."""

    def __init__(self, options: _Options) -> None:
        self._options = options
        self._journal: Journal | None = None
        self._target: Positions | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy, and connections do not travel.
        return self.__dict__ | {"_journal": None}

    @property
    def _open(self) -> Journal:
        if self._journal is None:
            self._journal = Journal(self._options.place)
        return self._journal

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins."""
        return offset_of(self._options.start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of the options; what Spark calls rows are entries of each stream here."""
        return ReadMaxRows(self._options.batch_entries)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember what there is now: the query ends when that is read."""
        states = self._open.states()
        self._target = {stream: Position(state.incarnation, state.last) for stream, state in states.items()}

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Choose up to where the next micro-batch reads.

        Raises:
            NotReady: something is gone that was not read yet.
        """
        begin = positions_of(start)
        end = _plan(self._open, begin, _entries(limit))
        if self._target is not None:
            # An entry that came after the query began is left for the next one.
            end = {stream: cap(begin[stream], each, self._target[stream]) for stream, each in end.items()}
        return offset_of(end)

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """As many as are wanted, which share the streams with something to read."""
        found = ranges(positions_of(start), positions_of(end))
        parts = min(self._options.parts, len(found))
        return [Part(tuple(found[number::parts])) for number in range(parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Tell which ranges they are."""
        assert isinstance(partition, Part)  # noqa: S101 - one of ours
        yield pa.RecordBatch.from_pylist([each.row() for each in partition.ranges], schema=_RANGES)

    def commit(self, end: dict[str, str]) -> None:
        """Trim what is in bronze, with a lag; the only place where anything is trimmed."""
        commit(self._open, positions_of(end), self._options.reader, self._options.trim_lag)

    def stop(self) -> None:
        """Close the connections."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None


def commit(journal: Journal, positions: Positions, reader: str, trim_lag: int) -> int:
    """Tell the grid up to where the journal is safe elsewhere, and trim it with a lag.

    Args:
        journal: to trim.
        positions: up to where.
        reader: who read it; empty to do nothing.
        trim_lag: entries to keep in each stream.

    Returns:
        Entries that were trimmed.
    """
    if not reader:
        return 0
    trimmed = 0
    for stream, position in positions.items():
        if position.incarnation:
            trimmed += max(0, journal.commit(stream, position, trim_before(position, trim_lag), reader))
    return trimmed


def _entries(limit: ReadLimit) -> int | None:
    """How many entries of a stream a limit of Spark means; None for all."""
    match limit:
        case ReadMaxRows():
            return limit.max_rows
        case ReadAllAvailable():
            return None
        case _:
            raise PipelineError(f"the source {NAME} does not know the limit {type(limit).__name__}")


__all__ = [
    "NAME",
    "EntryId",
    "EntryRange",
    "JournalSource",
    "Part",
    "commit",
    "ranges",
    "read_range",
    "source_options",
]
