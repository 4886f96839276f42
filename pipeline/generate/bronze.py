"""Synthetic journals as bronze."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from pipeline.generate.journal import Scale, Slice, slices
from pipeline.generate.rows import length
from pipeline.generate.tables import by_hour, events_table

COMPRESSION: Final = "zstd"
"""Half the size of snappy for this kind of table, at the same speed of reading."""

ROWS_PER_GROUP: Final = 131_072
"""So that a reader of a few columns of one file needs some megabytes."""


def write_bronze(scale: Scale, folder: Path, *, threads: int) -> Iterator[int]:
    """Write a journal into the folders of its dates and hours.

    Args:
        scale: which journal.
        folder: of bronze; it must not hold files of another one.
        threads: that give events their texts and write files, beside the one that generates; files do not depend on it.

    Yields:
        How many events are written so far.
    """
    written = 0
    waiting: deque[Future[int]] = deque()
    with ThreadPoolExecutor(threads, "write-bronze") as pool:
        for each in slices(scale):
            waiting.append(pool.submit(_write, each, scale.seed, folder))
            while len(waiting) > threads:
                written += waiting.popleft().result()
                yield written
        for one in waiting:
            written += one.result()
            yield written


def folder_of(bronze: Path, instant: int) -> Path:
    """Return the folder of the hour of an instant, in microseconds since 1970."""
    hour = datetime.fromtimestamp(instant // 1_000_000, UTC)
    return bronze / f"date={hour:%Y-%m-%d}" / f"hour={hour:%H}"


def _write(slice_: Slice, seed: int, folder: Path) -> int:
    for hour, part in by_hour(slice_):
        place = folder_of(folder, hour)
        place.mkdir(parents=True, exist_ok=True)
        table = events_table(part, seed)
        file = place / f"generated-{slice_.number:06}.parquet"
        hidden = place / f".{file.name}"
        # Not Arrow's own schema: whoever reads the file has that of bronze. Renamed when it is whole.
        pq.write_table(table, hidden, compression=COMPRESSION, row_group_size=ROWS_PER_GROUP, store_schema=False)
        hidden.rename(file)
    return length(slice_.rows)
