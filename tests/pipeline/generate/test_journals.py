"""Synthetic journals: the same for the same seed, in the order of real ones, of exactly the size asked for."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from gateway.core.journal import JOURNAL_PARTITIONS, journal_partition
from gateway.core.types import SessionId
from pipeline.cli.program import program, run
from pipeline.generate import Scale, slices, write_bronze
from pipeline.generate.texts import session_letters, streams_of
from pipeline.generate.units import HOUR, Numbers
from pipeline.generate.world import plan


def digests(folder: Path) -> dict[str, str]:
    return {str(each.relative_to(folder)): sha256(each.read_bytes()).hexdigest() for each in folder.rglob("*.parquet")}


def test_the_same_seed_gives_the_same_bytes_on_any_number_of_cores(tmp_path: Path) -> None:
    scale = Scale(20_000, seed=11, hours=1.5)
    for threads in (1, 4):
        assert list(write_bronze(scale, tmp_path / f"{threads}", threads=threads))[-1] == scale.events
    assert digests(tmp_path / "1") == digests(tmp_path / "4")
    list(write_bronze(Scale(20_000, seed=12, hours=1.5), tmp_path / "other", threads=2))
    assert not set(digests(tmp_path / "1").values()) & set(digests(tmp_path / "other").values())


@pytest.mark.parametrize("events", [1, 999, 12_345])
def test_a_journal_has_exactly_as_many_events_as_asked_for(events: int) -> None:
    assert sum(len(each.rows["at"]) for each in slices(Scale(events, hours=1))) == events


def test_files_lie_in_the_folders_of_their_hours(tmp_path: Path) -> None:
    list(write_bronze(Scale(30_000, hours=3), tmp_path, threads=2))
    found = duckdb.execute(
        f"""
        SELECT count(*), count(DISTINCT id), count(DISTINCT (stream, entry, line)),
               count(*) FILTER (date::TEXT || 'T' || hour = strftime("at"::TIMESTAMP, '%Y-%m-%dT%H'))
        FROM read_parquet('{tmp_path}/*/*/*.parquet', hive_partitioning = true, hive_types = {{'hour': VARCHAR}})
        """
    ).fetchall()
    assert found == [(30_000,) * 4]


def test_entries_follow_each_other_in_every_stream(journal: pa.Table) -> None:
    last: dict[int, tuple[int, int, int]] = {}
    teller: dict[tuple[int, str], str] = {}
    streams: dict[int, list[tuple[int, int, int]]] = {}
    for row in journal.select(["stream", "entry", "line", "incarnation"]).to_pylist():
        generation, sequence = map(int, row["entry"].split("-"))
        streams.setdefault(row["stream"], []).append((generation, sequence, row["line"]))
        # One node wrote all of an entry.
        assert teller.setdefault((row["stream"], row["entry"]), row["incarnation"]) == row["incarnation"]
    assert set(streams) == set(range(JOURNAL_PARTITIONS))
    for stream, places in streams.items():
        for generation, sequence, line in places:
            before = last.get(stream, (1, -1, 0))
            expected = {(before[0], before[1], before[2] + 1), (before[0], before[1] + 1, 0), (before[0] + 1, 0, 0)}
            assert (generation, sequence, line) in expected
            last[stream] = (generation, sequence, line)


def test_streams_are_those_that_the_gateway_chooses() -> None:
    numbers: Numbers = slices(Scale(2_000, hours=1)).__next__().rows["session"]
    numbers = numbers[numbers >= 0]
    letters = session_letters(5, numbers)
    expected = [journal_partition(SessionId(row.tobytes().decode())) for row in letters]
    assert streams_of(letters).tolist() == expected


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"events": 0}, "1 or more"),
        ({"events": 1, "nodes": 2}, "3 or more"),
        ({"events": 1, "hours": 0.5}, "1 hour"),
        ({"events": 1, "begins": 5}, "full hour"),
        ({"events": 1, "seed": -1}, "seed"),
    ],
)
def test_scales_that_make_no_sense_are_refused(given: dict[str, int], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Scale(**given)


def test_the_command_writes_bronze_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", "--events", "5000", "--seed", "4", "--lake", str(tmp_path)]
    told = CliRunner().invoke(program, arguments)
    assert told.exit_code == 0, told.output
    assert "5,000 events of seed 4" in told.stdout
    assert list((tmp_path / "bronze").rglob("*.parquet"))
    assert run(arguments) == 2
    assert "holds events already" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--seed", "99999999999999999999"), ("--nodes", "100000")])
def test_a_number_beyond_what_can_be_had_is_misuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    assert run(["generate", "--events", "10", option, value, "--lake", str(tmp_path)]) == 2
    assert f"'{option}': {value} is not in the range" in capsys.readouterr().err


def test_no_more_is_planned_than_a_journal_needs() -> None:
    """A hundred events are there within minutes, however many hours were asked for; what comes first stays the same."""
    short, whole = (
        plan(np.random.default_rng(3), begins=0, length=8_784 * HOUR, needed=needed * HOUR, nodes=6)
        for needed in (50, 500)
    )
    assert len(short.runs) < len(whole.runs) / 5
    assert short.resets == whole.resets[: len(short.resets)]
    first = next(slices(Scale(100, hours=8_784)))
    assert max(run.begins for run in first.world.runs) < first.world.begins + 4 * HOUR


def test_a_plan_tells_who_takes_clients_at_every_change() -> None:
    world = plan(np.random.default_rng(5), begins=0, length=100 * HOUR, needed=100 * HOUR, nodes=5)
    for at, takers, count in zip(world.changes, world.takers, world.counts, strict=True):
        wanted = [number for number, run in enumerate(world.runs) if run.takes_clients(int(at))]
        assert list(takers[:count]) == (wanted or [0])
