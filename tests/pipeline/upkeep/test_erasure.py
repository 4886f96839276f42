"""Whoever is forgotten is named nowhere in the lake, and everybody else is told of as before."""

from __future__ import annotations

import functools
import itertools
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.bronze.files import only_one
from pipeline.bronze.layout import bronze_of
from pipeline.cli.forget import forget as command
from pipeline.errors import NotReady
from pipeline.sessions.table import SessionsTable
from pipeline.upkeep.erasure import forget
from tests.pipeline.lake import events_in, quiet
from tests.pipeline.steps import until_killed
from tests.pipeline.upkeep.lakes import ALICE, BOB, fill, tables, traces

PERSONAL = ("principal", "client", "names", "other", "text")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake to copy."""
    lake = fill(tmp_path_factory.mktemp("model"), days=(0, 1))
    state = SessionsTable(lake.folder).checkpoint / "state" / "0.zip"
    state.parent.mkdir(parents=True)
    state.write_bytes(b"what is known of " + ALICE.encode())
    return lake.folder


@pytest.fixture
def lake(model: Path, tmp_path: Path) -> Path:
    shutil.copytree(model, tmp_path / "lake")
    return tmp_path / "lake"


def test_a_principal_is_named_nowhere_and_no_row_is_gone(lake: Path) -> None:
    before, ids = tables(lake), events_in(lake)
    assert len(traces(lake, ALICE)) > 10

    done = forget(lake, ALICE, quiet)

    assert traces(lake, ALICE) == []
    assert (done.sessions, events_in(lake)) == (2, ids)
    after = tables(lake)
    assert after.keys() == before.keys()
    erased = 0
    for name, rows in before.items():
        for old, new in zip(rows, after[name], strict=True):
            if ALICE in repr(old) or old.get("session") in {"a0", "a1"}:
                blank = {key: None for key in PERSONAL if key in old}
                assert new == old | blank, name
                erased += old != new
            else:
                assert new == old, name
    assert done.rows == erased > 10


def test_others_are_told_of_as_before(lake: Path) -> None:
    found = len(traces(lake, BOB))
    forget(lake, ALICE, quiet)
    assert len(traces(lake, BOB)) == found


def test_what_the_stream_knew_is_gone_and_sums_of_files_that_were_rewritten(lake: Path) -> None:
    table = SessionsTable(lake)
    forget(lake, "nobody", quiet)
    assert table.checkpoint.exists(), "nothing that it knows was erased"
    forget(lake, ALICE, quiet)
    assert not table.checkpoint.exists()
    assert list(table.changes.rglob("*.crc")) == []


def test_twice_is_as_good_as_once(lake: Path) -> None:
    forget(lake, ALICE, quiet)
    once = tables(lake)
    again = forget(lake, ALICE, quiet)
    assert (again.files, again.rows) == (0, 0)
    assert tables(lake) == once


def test_what_killed_jobs_left_names_nobody_either(lake: Path) -> None:
    """Files that tasks of the stream, or a retention, were writing."""
    table = SessionsTable(lake)
    rows = next(iter(table.root.glob("date=*/bucket-0.parquet")))
    for folder in (table.folding, table.work / "retention"):
        folder.mkdir()
        shutil.copy(rows, folder / "part.parquet")
    forget(lake, ALICE, quiet)
    assert traces(lake, ALICE) == []


def test_a_plan_that_was_not_written_to_its_end_names_nobody(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = itertools.count(1000)
    monkeypatch.setattr("pipeline.bronze.files.os.getpid", lambda: next(pids))
    plans, step = lake / "checkpoints", 0
    while not any(plans.glob(".erasure.json*")):
        step += 1
        assert until_killed(functools.partial(forget, lake, ALICE, quiet), step)
        assert not (plans / "erasure.json").exists(), "no step was found while the plan was written"
    forget(lake, BOB, quiet)
    assert [each.name for each in plans.iterdir() if each.is_file()] == []
    forget(lake, ALICE, quiet)
    assert traces(lake, ALICE) == []


@pytest.mark.thorough
def test_wherever_it_is_killed_the_next_run_finishes_it(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "whole")
    forget(tmp_path / "whole", ALICE, quiet)
    expected = tables(tmp_path / "whole")

    step, killed = 0, True
    while killed:
        step += 1
        lake = tmp_path / str(step)
        shutil.copytree(model, lake)
        killed = until_killed(functools.partial(forget, lake, ALICE, quiet), step)
        seen = {name: len(rows) for name, rows in tables_of_readers(lake).items()}
        assert seen == {name: len(rows) for name, rows in expected.items()}, f"before step {step}"
        # Another one is to be forgotten next, or the same one again.
        whom = BOB if step % 2 and (lake / "checkpoints" / "erasure.json").exists() else ALICE
        forget(lake, whom, quiet)
        assert traces(lake, ALICE) == [], f"before step {step}"
        if whom == ALICE:
            assert tables(lake) == expected, f"before step {step}"
        shutil.rmtree(lake)
    assert step > 30, "the steps of an erasure were not found"


def tables_of_readers(lake: Path) -> dict[str, list[dict[str, object]]]:
    """What readers see: nothing that is staged."""
    return {name: rows for name, rows in tables(lake).items() if "erasure/" not in name and "staging" not in name}


def test_it_needs_the_lake_for_itself(lake: Path) -> None:
    with (
        only_one(bronze_of(lake).log / "ingest.lock", "test"),
        pytest.raises(NotReady, match="another `pipeline ingest` works on"),
    ):
        forget(lake, ALICE, quiet)
    assert traces(lake, ALICE)


def test_the_command_tells_what_it_did(lake: Path, tmp_path: Path) -> None:
    ran = CliRunner().invoke(command, ["--lake", str(lake), "--principal", ALICE])
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.startswith("2 sessions, ")
    with pytest.raises(NotReady, match="there are no tables in"):
        forget(tmp_path / "empty", ALICE, quiet)
