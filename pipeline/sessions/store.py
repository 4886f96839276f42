"""What the stream of sessions knows: a file for each stream of the journal, in a folder for each micro-batch.

```text
<checkpoint>/known/000000000041/stream-07.parquet   what is known of the sessions of this stream, see ``folding``
<checkpoint>/known/000000000041/version.json        written last: from then on the folder counts
```

Batch 42 reads the folder of 41 and writes its own, so that it may be done twice: Spark hands a batch in again after a
crash. The folder lies in the checkpoint, so that neither is there without the other.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.core.journal import JOURNAL_PARTITIONS
from pipeline.bronze.files import sync, write_whole
from pipeline.errors import PipelineError
from pipeline.sessions.folding import KNOWN, NOTHING

FORMAT: Final = 1
"""Of ``version.json``."""

_DIGITS: Final = 12
"""Of the number of a batch in names, so that they sort."""

_WRITTEN: Final = "version.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What is known after a batch.

    Attributes:
        batch: its number; -1 before the first one.
        heard: time of the newest event of a node that was read, in microseconds since 1970, but never beyond now.
        sessions: of how many sessions something is known.
    """

    batch: int = -1
    heard: int = 0
    sessions: int = 0


class StateStore:
    """The versions of what is known.

    Args:
        checkpoint: of the stream.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self.root = checkpoint / "known"

    def is_missing(self) -> bool:
        """Whether there is a checkpoint without anything that is known: of a release that kept it elsewhere."""
        return self._checkpoint.exists() and not self.root.exists()

    def folder(self, batch: int) -> Path:
        """Tell where the version of a batch is."""
        return self.root / f"{batch:0{_DIGITS}}"

    def version(self, batch: int) -> Version:
        """Read what is known after a batch, -1 being before the first one.

        Raises:
            PipelineError: it is not there, or damaged.
        """
        if batch < 0:
            return Version()
        file = self.folder(batch) / _WRITTEN
        try:
            told = json.loads(file.read_bytes())
            if told.pop("format") != FORMAT:
                raise PipelineError(f"{file} was written by a newer pipeline; use that one, or newer")
            found = Version(**told)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise PipelineError(_damaged(file, error)) from None
        return found

    def read(self, batch: int, stream: int) -> pa.Table:
        """Read what is known of the sessions of a stream after a batch.

        Raises:
            PipelineError: it is not there, or damaged.
        """
        if batch < 0:
            return NOTHING
        file = self._file(batch, stream)
        try:
            return pq.read_table(file, schema=KNOWN, partitioning=None).combine_chunks()
        except (OSError, pa.ArrowException) as error:
            raise PipelineError(_damaged(file, error)) from None

    def commit(self, version: Version, files: Mapping[int, Path]) -> None:
        """Make a version count; whatever is older than the one before goes.

        Args:
            version: which.
            files: what has changed by stream, on disk; of other streams the files are those of the batch before.
        """
        folder = self.folder(version.batch)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for stream in range(JOURNAL_PARTITIONS):
            place = self._file(version.batch, stream)
            if stream in files:
                files[stream].replace(place)
            elif version.batch > 0:
                _pass_on(self._file(version.batch - 1, stream), place)
            else:
                pq.write_table(NOTHING, place)
        sync(folder)
        write_whole(folder / _WRITTEN, json.dumps(asdict(version) | {"format": FORMAT}).encode())
        for each in self.root.iterdir():
            if each.name < self.folder(version.batch - 1).name:
                shutil.rmtree(each)

    def _file(self, batch: int, stream: int) -> Path:
        return self.folder(batch) / f"stream-{stream:02}.parquet"


def _pass_on(file: Path, place: Path) -> None:
    """Have a file under another name as well; it is copied where the file system knows no such thing."""
    try:
        os.link(file, place)
    except FileNotFoundError as error:
        raise PipelineError(_damaged(file, error)) from None
    except OSError:
        shutil.copyfile(file, place)
        sync(place)


def _damaged(file: Path, error: Exception) -> str:
    return (
        f"what the stream of sessions knows is damaged: {file} cannot be read ({error}). Remove the folder "
        f"{file.parents[2]} and run it again: it begins anew from bronze"
    )
