"""Where a reader stands in the streams: pure, so that every case can be tried without Redis and without Spark.

Ids of entries are ``<generation>-<sequence>``. Within a generation of the grid the sequence counts the entries of the
stream from 0 without a hole, so that the ids alone tell whether something was cut out between two of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from gateway.core.journal import JOURNAL_PARTITIONS
from gateway.core.types import LARGEST_GENERATION
from pipeline.errors import NotReady, PipelineError


class EntryId(NamedTuple):
    """The id of an entry; they compare as they were written.

    Attributes:
        generation: of the grid.
        sequence: of the entry within the generation.
    """

    generation: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.generation}-{self.sequence}"

    @property
    def is_foreign(self) -> bool:
        """Whether another program had Redis make it up: the gateway never gives it, and nothing may wait behind it."""
        return self.generation > LARGEST_GENERATION


BEGINNING: Final = EntryId(0, 0)
"""Before every entry: generations count from 1."""


def read_entry_id(text: str) -> EntryId:
    """Read what Redis calls an entry.

    Raises:
        PipelineError: it is no id.
    """
    generation, _, sequence = text.partition("-")
    try:
        return EntryId(int(generation), int(sequence))
    except ValueError:
        raise PipelineError(f"{text[:60]!r} is no id of an entry of a stream") from None


@dataclass(frozen=True, slots=True)
class Position:
    """How far a stream has been read.

    Attributes:
        incarnation: of the stream; empty if nothing of it was ever seen.
        entry: the last one read.
    """

    incarnation: str = ""
    entry: EntryId = BEGINNING

    def __str__(self) -> str:
        return f"{self.incarnation}:{self.entry}"


Positions: TypeAlias = Mapping[int, Position]
"""A position for each stream."""

START: Final[Positions] = {stream: Position() for stream in range(JOURNAL_PARTITIONS)}
"""Nothing has been read."""


def offset_of(positions: Positions) -> dict[str, str]:
    """Write positions as Spark keeps them."""
    return {str(stream): str(positions[stream]) for stream in sorted(positions)}


def position_of(text: str) -> Position:
    """Read a position as ``str`` writes it.

    Earlier releases could come to stand at an entry of another program, where everything of the gateway's is before
    it. Such a place is none: the stream is read anew, and bronze leaves out what it has.

    Raises:
        PipelineError: it is something else.
    """
    incarnation, colon, entry = text.rpartition(":")
    if not colon:
        raise PipelineError(f"{text[:80]!r} is no position in a stream")
    position = Position(incarnation, read_entry_id(entry))
    return Position() if position.entry.is_foreign else position


def positions_of(offset: Mapping[str, str]) -> dict[int, Position]:
    """Read what ``offset_of`` wrote; streams that it does not name are at their beginning.

    Raises:
        PipelineError: it is something else.
    """
    result = dict(START)
    for stream, text in offset.items():
        if ":" not in str(text) or not stream.isdecimal() or int(stream) not in result:
            raise PipelineError(f"the offset of stream {stream[:20]!r} is not one of this pipeline: {str(text)[:80]!r}")
        result[int(stream)] = position_of(str(text))
    return result


@dataclass(frozen=True, slots=True)
class StreamState:
    """What a stream is like now, without what other programs have appended.

    Attributes:
        incarnation: of the stream; empty if there is none.
        first: its oldest entry; None if it has none.
        last: the newest entry that it ever had.
        deleted: the newest entry that somebody deleted by hand; trimming leaves no such trace. Those of other programs
            do not count: the gateway deletes them.
    """

    incarnation: str = ""
    first: EntryId | None = None
    last: EntryId = BEGINNING
    deleted: EntryId = BEGINNING

    def __post_init__(self) -> None:
        if self.deleted.is_foreign:
            object.__setattr__(self, "deleted", BEGINNING)


def what_is_gone(position: Position, state: StreamState) -> str | None:
    """Tell what of a stream is gone though it was not read yet.

    After a failover to a Redis that had received less, ``last`` may lie before the position. Nothing that is needed is
    gone then: what comes next has a higher generation (ADR 0003), and the numbers of events tell what the grid lost.

    Args:
        position: up to where it was read.
        state: what it is like now.

    Returns:
        The end of a sentence that begins with the stream; None if all is there.
    """
    if not position.incarnation:
        return None
    if state.incarnation != position.incarnation:
        now = "there is none now" if not state.incarnation else "it is a new one"
        return f"was emptied after entry {position.entry} had been read ({now}); what it held unread is unknown"
    if state.deleted > position.entry:
        return f"has lost entries after {position.entry}, up to {state.deleted}: they were deleted by hand"
    if state.last <= position.entry:
        return None
    if state.first is None:
        return (
            f"has lost its entries after {position.entry}, up to {state.last}: they were trimmed before they were read"
        )
    same = state.first.generation == position.entry.generation
    follows = state.first.sequence <= position.entry.sequence + 1 if same else state.first.sequence == 0
    if state.first > position.entry and not follows:
        return f"has lost entries after {position.entry}, before {state.first}: they were trimmed before they were read"
    return None


ACCEPT_LOSS: Final = "run `pipeline ingest --accept-loss` to write the loss down in bronze and go on behind it"
"""What to do when something is gone."""


_NAMED: Final = 3
"""Streams whose loss is told in full: mostly all have the same cause."""


def refuse_gaps(positions: Positions, states: Mapping[int, StreamState]) -> None:
    """Refuse to go on if something is gone that was not read yet.

    Raises:
        NotReady: which streams, and what to do.
    """
    gone = {
        stream: what for stream, state in states.items() if (what := what_is_gone(positions[stream], state)) is not None
    }
    if gone:
        lines = [f"stream {stream} of the journal {what}" for stream, what in sorted(gone.items())[:_NAMED]]
        rest = [f"{len(gone) - _NAMED} more streams have lost something, too"] if len(gone) > _NAMED else []
        raise NotReady("; ".join([*lines, *rest, ACCEPT_LOSS]))


def skip_gap(position: Position, state: StreamState) -> Position:
    """Where to go on when what is gone is accepted as lost: before the oldest entry that there is."""
    if what_is_gone(position, state) is None:
        return position
    same = state.incarnation == position.incarnation
    behind = max(state.deleted, position.entry if same else BEGINNING)
    if state.first is None:
        return Position(state.incarnation, max(behind, state.last)) if state.incarnation else Position()
    before = EntryId(state.first.generation, state.first.sequence - 1) if state.first.sequence else BEGINNING
    return Position(state.incarnation, max(behind, before))


def next_end(position: Position, state: StreamState, following: EntryId | None, limit: int | None) -> Position:
    """Choose up to where to read next.

    The end need not be an entry. It is never after ``last``, so that nothing can be appended before it later, and the
    range holds the same entries whenever it is read.

    Args:
        position: up to where it was read.
        state: what it is like now, nothing being gone.
        following: the first entry after the position; None if there is none.
        limit: entries to read at most; None for all.

    Returns:
        The end of the range, the position itself if there is nothing to read.
    """
    if following is None or state.last <= position.entry:
        return position
    end = state.last
    if limit is not None:
        end = min(end, replace_sequence(following, following.sequence + limit - 1))
    return Position(state.incarnation, end)


def replace_sequence(entry: EntryId, sequence: int) -> EntryId:
    """The entry of the same generation with another sequence number."""
    return EntryId(entry.generation, sequence)


def cap(begin: Position, end: Position, target: Position) -> Position:
    """Keep the end of a range from passing a target that was set before; a stream that came later waits."""
    if end.incarnation != target.incarnation or target.entry <= begin.entry:
        return begin
    return replace(end, entry=min(end.entry, target.entry))


def trim_before(position: Position, lag: int) -> EntryId | None:
    """Choose before which entry a stream may be trimmed.

    Args:
        position: up to where everything is committed.
        lag: entries to keep behind it.

    Returns:
        The oldest entry to keep; None to trim nothing, which is so until a new generation is older than the lag.
    """
    sequence = position.entry.sequence + 1 - lag
    return replace_sequence(position.entry, sequence) if sequence > 0 else None
