"""How finely to divide the work: computed from the size of what a job reads, so that nobody has to set it.

Spark's own 200 shuffle partitions are far too many for a small journal, where starting tasks takes longer than their
work, and too few for a large one, where tasks no longer fit into memory. A journal's Parquet is some 22 bytes an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

TASK_BYTES: Final = 32 << 20
"""Parquet that one task reads: some 1.5 million events, seconds of work, and some hundred megabytes as rows."""

LEAST_PARTITIONS: Final = 2
"""So that a small job uses more than one core."""

MOST_PARTITIONS: Final = 4_096
"""Beyond it, to keep track of tasks costs more than smaller ones save: 6 billion events."""


def parquet_bytes(folders: Iterable[Path]) -> int:
    """Add up the sizes of the Parquet files below some folders; what is hidden does not count, as for readers."""
    return sum(
        file.stat().st_size
        for folder in folders
        for file in folder.rglob("*.parquet")
        if not any(part.startswith(("_", ".")) for part in file.relative_to(folder).parts)
    )


def partitions(read: int) -> int:
    """Tell into how many parts to shuffle.

    Args:
        read: bytes of Parquet that the job reads.
    """
    return min(max(LEAST_PARTITIONS, -(-read // TASK_BYTES)), MOST_PARTITIONS)


def sized(folders: Iterable[Path]) -> Mapping[str, str]:
    """Make the settings of Spark for a job that reads these folders."""
    return {
        "spark.sql.shuffle.partitions": str(partitions(parquet_bytes(folders))),
        "spark.sql.files.maxPartitionBytes": str(TASK_BYTES),
    }
