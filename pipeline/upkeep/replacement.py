"""Files of a table are replaced one by one, each in one step."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.bronze.files import sync
from pipeline.bronze.staging import PARQUET


def replace_file(file: Path, rows: pa.Table, staging: Path) -> None:
    """Put other rows into the place of a file: a reader sees the old ones or the new ones, whenever the power fails.

    Args:
        file: to be replaced.
        rows: that it holds afterwards.
        staging: a folder on the same file system.
    """
    waiting = staging / f"{uuid4().hex}.parquet"
    pq.write_table(rows, waiting, **PARQUET)
    sync(waiting)
    # Hadoop keeps a sum of what Spark has written beside it, and would take the new file for a damaged one.
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    waiting.replace(file)
    sync(file.parent)


def read_file(file: Path) -> pa.Table:
    """Read a file as it is, without what the names of its folders say."""
    with pq.ParquetFile(file) as opened:
        return opened.read()
