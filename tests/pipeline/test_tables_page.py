"""The reference page of the tables is what their declarations say."""

from __future__ import annotations

from pathlib import Path

from pipeline.cli.tables import tables_page
from pipeline.gold.tables import TABLES

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_is_committed() -> None:
    committed = (ROOT / "docs" / "reference" / "tables.md").read_text("utf-8")
    assert committed == tables_page(), "run: python -m pipeline.cli.tables docs/reference/tables.md"


def test_every_gold_table_is_stored_by_its_last_column() -> None:
    for each in TABLES.values():
        assert each.columns[-1].name == "date"
        names = [column.name for column in each.columns]
        assert len(set(names)) == len(names)
