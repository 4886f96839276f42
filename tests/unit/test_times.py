"""The factor of real times in tests."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.support import times

TESTS = Path(__file__).parents[1]


def test_the_environment_sets_the_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(times.SCALE_VARIABLE, "4")

    assert times.scaled(0.5) == 2.0
    assert times.scale(processes=8) == 4.0, "what is set is not raised"


def test_a_scaled_time_can_be_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(times.SCALE_VARIABLE, "1.83")

    assert str(times.scaled(0.4)) == "0.732", "and not 0.7320000000000001, which no setting takes"


@pytest.mark.parametrize("written", ["0", "-1", "nan", "inf", "slow"])
def test_what_is_no_factor_is_refused(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv(times.SCALE_VARIABLE, written)

    with pytest.raises(ValueError, match=times.SCALE_VARIABLE):
        times.scaled(1)


def test_what_was_measured_is_handed_to_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(times.SCALE_VARIABLE, raising=False)
    monkeypatch.delenv(times.MEASURED_VARIABLE)
    measured = times.scale(processes=1)
    told = float(os.environ[times.MEASURED_VARIABLE])

    assert measured == times.scale(processes=1) == times.crowded(told, processes=1, cores=1)


def test_the_workers_of_a_run_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(times.SCALE_VARIABLE, raising=False)
    monkeypatch.setenv(times.MEASURED_VARIABLE, "1.5")
    monkeypatch.setenv(times.WORKERS_VARIABLE, "6")

    assert times.scale() == times.crowded(1.5, processes=6, cores=os.cpu_count() or 1) > 1.5


@pytest.mark.parametrize(
    ("measured", "processes", "expected"),
    [(0.7, 1, 1.0), (3.0, 1, 3.0), (1.0, 6, 2.25), (4.0, 6, 5.25), (99.0, 6, times.LARGEST_SCALE)],
)
def test_a_run_in_many_processes_is_a_load_itself(measured: float, processes: int, expected: float) -> None:
    assert times.crowded(measured, processes=processes, cores=2) == expected


async def test_a_time_limit_is_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(times.SCALE_VARIABLE, "4")

    async with times.time_limit(100) as limit:
        deadline = limit.when()

    assert deadline is not None
    assert deadline - asyncio.get_running_loop().time() > 300


def test_every_test_may_take_its_scaled_time(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("timeout")

    assert marker.args == (times.scaled(float(request.config.getini("timeout"))),)


def test_no_test_has_a_time_limit_of_its_own() -> None:
    """Else it fails on a busy machine."""
    direct = {
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        if path.name not in {"times.py", "test_times.py"} and "fuzz" not in path.parts
        for line in path.read_text().splitlines()
        if "asyncio.timeout(" in line
    }

    lets_time_pass = {"chaos/load/crowd.py", "cluster/test_idle_cost.py"}
    assert direct == lets_time_pass, "use tests.support.times, unless nothing has to happen in that time"
