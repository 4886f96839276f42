"""The collector of cycles is told to look seldom, and not at what stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from gateway.garbage import MIDDLE, OLD, YOUNG, collect_seldom


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_what_exists_is_not_looked_at_again_and_cycles_are_still_found() -> None:
    collect_seldom()

    assert gc.get_threshold() == (YOUNG, MIDDLE, OLD)
    assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    assert gc.collect() >= 1
