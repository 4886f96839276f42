"""The gold tables by DuckDB, from the same bronze and silver, for the time it takes: ``… duckdb_gold LAKE``."""

from __future__ import annotations

import sys
from pathlib import Path

from pipeline.gold.tables import TABLES
from tests.pipeline.gold.oracle import oracle, query


def main(lake: Path) -> None:
    """Compute every table and write it as Parquet, as the job does."""
    connection = oracle(lake)
    folder = lake / "duckdb"
    folder.mkdir(exist_ok=True)
    for table in TABLES:
        connection.execute(f"COPY ({query(table)}) TO '{folder / table}.parquet' (FORMAT parquet)")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
