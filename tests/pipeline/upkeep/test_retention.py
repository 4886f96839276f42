"""What is older than it may be kept is in no table any more, and everything else is."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from pipeline.bronze.layout import DAY
from pipeline.cli.compact import compact
from pipeline.columns import arrow_schema
from pipeline.lake import Lake
from pipeline.schemas import SILVER
from pipeline.upkeep.retention import SILENT, Retained, retain
from tests.pipeline.lake import quiet
from tests.pipeline.steps import until_killed
from tests.pipeline.upkeep.lakes import ALICE, BOB, NOW, fill, instant, row, tables, write


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return fill(tmp_path / "lake", days=(0, 5, 50))


def seen(lake: Path) -> set[str]:
    """Sessions of silver, and days of gold."""
    rows = tables(lake)
    sessions = {each["session"] for name, found in rows.items() if name.startswith("silver") for each in found}
    return sessions | {name.split("/")[2] for name in rows if name.startswith("gold/inc")}


def test_old_sessions_and_old_days_go(lake: Lake) -> None:
    days = {back: f"date={instant(NOW - back * DAY - DAY // 24):%Y-%m-%d}" for back in (0, 5, 50)}
    assert seen(lake.folder) == {"a0", "b0", "a5", "b5", "a50", "b50", *days.values()}
    assert retain(lake.folder, NOW - 30 * DAY, quiet) == Retained(sessions=2, days=3)
    assert seen(lake.folder) == {"a0", "b0", "a5", "b5", days[0], days[5]}
    assert not (lake.sessions / days[50]).exists()
    assert retain(lake.folder, NOW - 30 * DAY, quiet) == Retained()


def test_a_session_stays_while_it_lives_or_was_heard_of(tmp_path: Path) -> None:
    lake, long_ago = Lake(tmp_path), NOW - 200 * DAY
    silent = long_ago - SILENT.days * DAY
    rows = [
        row(ALICE, 1, long_ago, state="ended"),
        row(BOB, 1, long_ago, state="ended", last_event_at=instant(NOW)),
        row(ALICE, 2, long_ago, state="connected"),
        row(BOB, 2, silent, state="connected"),
        row(ALICE, 3, silent, state="away"),
    ]
    file = lake.sessions / f"date={instant(long_ago):%Y-%m-%d}" / "bucket-3.parquet"
    write(file, rows, arrow_schema(SILVER))
    assert retain(tmp_path, NOW - 180 * DAY, quiet).sessions == 3
    assert set(pq.read_table(file, partitioning=None)["session"].to_pylist()) == {"b1", "a2"}


@pytest.mark.thorough
def test_wherever_it_is_killed_the_next_run_finishes_it(lake: Lake, tmp_path: Path) -> None:
    shutil.copytree(lake.folder, tmp_path / "whole")
    retain(tmp_path / "whole", NOW - 3 * DAY, quiet)
    expected = tables(tmp_path / "whole")
    everything = seen(lake.folder)
    step, killed = 0, True
    while killed:
        step += 1
        copy = tmp_path / str(step)
        shutil.copytree(lake.folder, copy)
        killed = until_killed(functools.partial(retain, copy, NOW - 3 * DAY, quiet), step)
        assert {"a0", "b0"} <= seen(copy) <= everything
        retain(copy, NOW - 3 * DAY, quiet)
        assert tables(copy) == expected, f"before step {step}"
    assert step > 10, "the steps were not found"


def test_the_command_keeps_all_three_as_long(lake: Lake) -> None:
    ran = CliRunner().invoke(compact, ["--lake", str(lake.folder), "--keep-days", "30"])
    assert ran.exit_code == 0, ran.output
    assert "1 old hours removed" in ran.stdout
    assert "2 old sessions removed, 3 old days of gold tables removed" in ran.stdout
    assert not any("50" in name for name in seen(lake.folder) if len(name) == 3)
