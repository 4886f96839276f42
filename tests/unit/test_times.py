"""The factor of real times in tests."""

from __future__ import annotations

import ast
import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support import times

TESTS = Path(__file__).parents[1]

SETTINGS: Final = frozenset({"grid_timeout", "lease", "lease_renew"})
"""Times after which a node gives something up: on a busy machine it would do so by mistake."""

SETTINGS_OF_GRIDS: Final = frozenset({"timeout"})
"""The same where tests make a ``RedisGrid`` without a node."""

GIVEN: Final = re.compile(rf"\b({'|'.join(sorted(SETTINGS | SETTINGS_OF_GRIDS))})\"?\s*[:=]\s*[0-9.]")
"""What a file has in which one of them may be given as a number."""

OVER_AT_ONCE: Final = 0.1
"""Seconds below which a lease is meant to have expired when the next step looks."""

NEVER_OVER: Final = 10.0
"""Seconds from which on nobody waits for the end of a lease."""


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
        if "asyncio.timeout(" in line and "asyncio.timeout(0)" not in line  # what is there already
    }

    lets_time_pass = {"chaos/load/crowd.py", "chaos/load/transactions.py", "cluster/test_idle_cost.py"}
    assert direct == lets_time_pass, "use tests.support.times, unless nothing has to happen in that time"


def test_no_test_gives_a_grid_a_time_of_its_own() -> None:
    """Else a node takes a busy machine for an outage, or loses its lease to it."""
    direct = {
        f"{path.relative_to(TESTS)}:{line} {name}={seconds:g}"
        for path in TESTS.rglob("*.py")
        for line, name, seconds in times_given(path)
    }

    # Those whose plans have nodes lose their leases, and who judge them by what nodes told.
    # And virtual time, which no machine is too busy for.
    judged = ("chaos/target.py:", "browser/world.py:", "support/virtual_cluster.py:", "integration/zones/")
    assert {each for each in direct if not each.startswith(judged)} == set(), "use tests.support.times.scaled"


def test_a_time_that_is_given_is_found(tmp_path: Path) -> None:
    redis = tmp_path / "integration" / "redis"
    redis.mkdir(parents=True)
    source = """
running_node(lease=2, lease_renew=scaled(0.3))
settings = {"grid_timeout": 2, "lease": scaled(3.0)} | {"lease_renew": 0.3}
join(node, lease=60)
join(node, lease=0.01)
bench.grid(timeout=0.5)
"""
    (tmp_path / "elsewhere.py").write_text(source)
    (redis / "here.py").write_text(source)

    found = [(2, "lease", 2), (3, "grid_timeout", 2), (3, "lease_renew", 0.3)]
    assert sorted(times_given(tmp_path / "elsewhere.py")) == found
    assert sorted(times_given(redis / "here.py")) == [*found, (6, "timeout", 0.5)]


def times_given(path: Path) -> Iterator[tuple[int, str, float]]:
    """Yield line, name and seconds of each time that is given to nodes or grids as a number."""
    names = SETTINGS | (SETTINGS_OF_GRIDS if path.parts[-3:-1] == ("integration", "redis") else frozenset())
    text = path.read_text()
    if not GIVEN.search(text):
        return  # reading all of them as programs takes seconds
    for node in ast.walk(ast.parse(text)):
        given: list[tuple[object, ast.expr]] = []
        if isinstance(node, ast.Call):
            given = [(each.arg, each.value) for each in node.keywords]
        elif isinstance(node, ast.Dict):
            given = [
                (key.value, value)
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant)
            ]
        for name, value in given:
            if (
                name in names
                and isinstance(value, ast.Constant)
                and isinstance(value.value, int | float)
                and OVER_AT_ONCE <= value.value < NEVER_OVER
            ):
                yield value.lineno, str(name), value.value
