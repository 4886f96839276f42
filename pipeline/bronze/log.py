"""The log of commits: what bronze holds, and how far the journal has been taken in.

A commit is one file in ``_log``, written in one step: before it nothing of the batch counts, after it all of it does.
Its data files wait in ``_staging`` until then and are moved to their places afterwards; a crash in between is mended by
moving the rest when bronze is opened the next time. Spark may hand in a batch twice and keeps offsets of its own; what
counts is the position in the newest commit.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from pipeline.bronze.files import in_turn, make_folders, sync, write_whole
from pipeline.bronze.layout import Layout
from pipeline.errors import PipelineError
from pipeline.source.offsets import START, Positions, offset_of, positions_of

FORMAT: Final = 1
"""Of the files in the log."""

REMEMBERED: Final = 256
"""Node incarnations for each stream whose highest event number is remembered. What comes twice, comes from a node that
lives; so many never write to one journal within days."""

_PUBLISHED: Final = "published"
"""The file that tells up to which commit all files are in their places."""

_DIGITS: Final = 12
"""Of the number of a commit in names, so that they sort."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a commit, or all of them, brought in.

    Attributes:
        events: in bronze.
        rejected: lines that are in ``_rejected``.
        duplicates: events left out, because bronze had them.
        misdated: events with an impossible time, filed under the hour of their arrival.
        losses: gaps in streams that somebody accepted.
    """

    events: int = 0
    rejected: int = 0
    duplicates: int = 0
    misdated: int = 0
    losses: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: value + getattr(other, name) for name, value in asdict(self).items()})


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that a task has written.

    Attributes:
        staged: its name in the staging folder.
        path: where it belongs, below the root of bronze.
        stream: whose lines it holds.
        rows: how many.
        size: bytes.
    """

    staged: str
    path: str
    stream: int
    rows: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit, and what is so after it.

    Attributes:
        sequence: its number, from 1.
        lake: names this bronze in the grid; chosen at random with the first commit.
        at: when, in microseconds since 1970.
        positions: how far each stream has been taken in.
        numbers: for each stream the highest event number of each node incarnation, the one that wrote last at the end.
        files: that it brought in.
        counts: what it brought in.
        totals: what all commits brought in.
        losses: sentences about what was accepted as lost.
    """

    sequence: int
    lake: str
    at: int
    positions: Positions
    numbers: Mapping[int, Mapping[str, int]]
    files: Sequence[StagedFile] = ()
    counts: Counts = Counts()
    totals: Counts = Counts()
    losses: Sequence[str] = ()

    def to_json(self) -> bytes:
        """Write it."""
        told: dict[str, Any] = asdict(self) | {"format": FORMAT, "positions": offset_of(self.positions)}
        return json.dumps(told, indent=1).encode()

    @classmethod
    def from_json(cls, text: bytes, name: str) -> Self:
        """Read what ``to_json`` wrote.

        Raises:
            PipelineError: it is something else, or of a newer pipeline.
        """
        try:
            told = json.loads(text)
            if told.pop("format") != FORMAT:
                raise PipelineError(f"{name} was written by a newer pipeline; use that one, or newer")
            told["positions"] = positions_of(told["positions"])
            told["numbers"] = {int(stream): numbers for stream, numbers in told["numbers"].items()}
            told["files"] = [StagedFile(**each) for each in told["files"]]
            told["counts"], told["totals"] = Counts(**told["counts"]), Counts(**told["totals"])
            return cls(**told)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PipelineError(f"{name} is no commit of bronze ({error}); restore it from a copy") from None


@dataclass(frozen=True, slots=True)
class Batch:
    """What the tasks of a batch have prepared.

    Attributes:
        files: that they wrote.
        positions: of the streams that they read, at their end.
        numbers: highest event numbers that they saw, by stream and node incarnation.
        counts: of their lines.
    """

    files: Sequence[StagedFile] = ()
    positions: Positions = field(default_factory=dict)
    numbers: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    counts: Counts = Counts()


class CommitLog:
    """The commits of one bronze.

    Args:
        layout: where it is.
        job: whose staging folder holds the files.
    """

    def __init__(self, layout: Layout, job: str = "ingest") -> None:
        self._layout = layout
        self._staging = layout.staging(job)

    @property
    def lock(self) -> Path:
        """Held for a moment by whoever moves files into, or out of, the folders of hours."""
        return self._layout.log / "lock"

    def sequences(self) -> list[int]:
        """Numbers of the commits that are still in the log, in order."""
        return sorted(int(path.stem) for path in self._layout.log.glob(f"{'[0-9]' * _DIGITS}.json"))

    def read(self, sequence: int) -> Commit:
        """Read a commit.

        Raises:
            PipelineError: it is not there, or damaged.
        """
        path = self._path(sequence)
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            raise PipelineError(f"the commit {path} is not there any more") from None
        return Commit.from_json(text, str(path))

    def newest(self) -> Commit:
        """Read the newest commit; before the first one, an empty one with the number 0."""
        known = self.sequences()
        if not known:
            return Commit(sequence=0, lake="", at=0, positions=START, numbers={})
        return self.read(known[-1])

    def append(self, batch: Batch, losses: Sequence[str] = ()) -> Commit:
        """Commit a batch: from then on all of it is in bronze.

        Args:
            batch: its files are in the staging folder, and on disk.
            losses: sentences about what is accepted as lost.
        """
        before = self.newest()
        after = Commit(
            sequence=before.sequence + 1,
            lake=before.lake or secrets.token_hex(8),
            at=time.time_ns() // 1000,
            positions={**before.positions, **batch.positions},
            numbers=_merge(before.numbers, batch.numbers),
            files=batch.files,
            counts=batch.counts,
            totals=before.totals + batch.counts,
            losses=losses,
        )
        write_whole(self._path(after.sequence), after.to_json())
        self.publish(after)
        return after

    def publish(self, commit: Commit) -> None:
        """Move the files of a commit to their places, unless that is known to be done; also what a crash left to do.

        Raises:
            PipelineError: a file is neither here nor there.
        """
        root = self._layout.root
        with in_turn(self.lock):
            if self.published() >= commit.sequence:
                return
            make_folders({(root / each.path).parent for each in commit.files}, root)
            for each in commit.files:
                waiting, place = self._staging / each.staged, root / each.path
                try:
                    waiting.replace(place)
                except FileNotFoundError:
                    if not place.exists() and not any(place.parent.glob("compacted-*.parquet")):
                        raise PipelineError(
                            f"bronze is damaged: commit {commit.sequence} has {place}, which is not there"
                        ) from None
            for folder in {(root / each.path).parent for each in commit.files}:
                sync(folder)
            write_whole(self._layout.log / _PUBLISHED, str(commit.sequence).encode())

    def published(self) -> int:
        """Tell the number of the newest commit whose files are in their places; 0 if there is none."""
        try:
            return int((self._layout.log / _PUBLISHED).read_bytes())
        except (FileNotFoundError, ValueError):
            return 0

    def expire(self, before: int) -> int:
        """Remove commits that are older than an instant, but never the newest.

        Args:
            before: microseconds since 1970.

        Returns:
            How many were removed.
        """
        removed = 0
        for sequence in self.sequences()[:-1]:
            if self.read(sequence).at >= before:
                break
            self._path(sequence).unlink()
            removed += 1
        return removed

    def _path(self, sequence: int) -> Path:
        return self._layout.log / f"{sequence:0{_DIGITS}}.json"


def _merge(before: Mapping[int, Mapping[str, int]], new: Mapping[int, Mapping[str, int]]) -> dict[int, dict[str, int]]:
    result = {stream: dict(numbers) for stream, numbers in before.items()}
    for stream, numbers in new.items():
        known = result.setdefault(stream, {})
        for incarnation, number in numbers.items():
            # Taken out and put in again, it stands at the end.
            known[incarnation] = max(number, known.pop(incarnation, 0))
        for forgotten in list(known)[:-REMEMBERED]:
            del known[forgotten]
    return result


def gather(told: Iterable[Batch]) -> Batch:
    """Put together what the tasks of a batch tell."""
    result = Batch()
    for each in told:
        result = replace(
            result,
            files=[*result.files, *each.files],
            positions={**result.positions, **each.positions},
            numbers=_merge(result.numbers, each.numbers),
            counts=result.counts + each.counts,
        )
    return result


def commits(log: CommitLog, after: int, until: int) -> Iterator[Commit]:
    """Read the commits after one, up to another."""
    for sequence in range(after + 1, until + 1):
        yield log.read(sequence)
