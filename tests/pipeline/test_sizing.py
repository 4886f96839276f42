"""Jobs are divided by the size of what they read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.sizing import MOST_PARTITIONS, TASK_BYTES, parquet_bytes, partitions, sized


@pytest.mark.parametrize(
    ("read", "parts"),
    [(0, 2), (1, 2), (2 * TASK_BYTES, 2), (2 * TASK_BYTES + 1, 3), (40 * TASK_BYTES, 40), (10**15, MOST_PARTITIONS)],
)
def test_parts_grow_with_what_is_read(read: int, parts: int) -> None:
    assert partitions(read) == parts


def test_only_what_readers_see_counts(tmp_path: Path) -> None:
    for name in ("date=2026-01-01/a.parquet", "b.parquet", "_staging/c.parquet", ".hidden.parquet", "d.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"1234567890")
    assert parquet_bytes([tmp_path]) == 20
    assert sized([tmp_path])["spark.sql.shuffle.partitions"] == "2"
