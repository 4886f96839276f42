"""One small journal for all tests of the generator."""

from __future__ import annotations

import pyarrow as pa
import pytest

from gateway.core.journal import BadRecord, Record, read_records, write_records
from pipeline.generate import Scale, events_table, records, slices

SCALE = Scale(60_000, seed=3, hours=2)
"""Long enough for each kind of thing that goes wrong."""


@pytest.fixture(scope="session")
def journal() -> pa.Table:
    """All events with their places."""
    return pa.concat_tables(events_table(each, SCALE.seed) for each in slices(SCALE))


@pytest.fixture(scope="session")
def events(journal: pa.Table) -> list[Record]:
    """All events in the order of their times, as readers of the journal read them."""
    found = [each for each in read_records(write_records(records(journal))) if not isinstance(each, BadRecord)]
    return sorted(found, key=lambda each: each["at"])
