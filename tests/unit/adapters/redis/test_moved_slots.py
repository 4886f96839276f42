"""Slots that are moved while the grid is adopted anew."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.adapters.redis import slots
from gateway.adapters.redis.cluster import ClusterFinder
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.topology import Topology


class Silent:
    """A master that must not be asked."""

    async def ask(self, _command: object) -> bytes:
        raise AssertionError("masters of one adoption are asked about those of another")


@pytest.mark.promise("P10")
async def test_masters_of_one_adoption_are_not_asked_about_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by random faults: there were more masters than before, and the task that follows slots died of it."""
    monkeypatch.setattr(slots, "FIRST_LOOK", 0.0)
    before = SimpleNamespace(topology=Topology(("one:1", "two:2"), {}))  # type: ignore[arg-type]
    grid: Any = SimpleNamespace(_attached=before, batcher=SimpleNamespace(batchers=[Silent(), Silent()]), _timeout=1.0)
    following = asyncio.ensure_future(GridConnection._follow_slots(grid, cast(Any, before), cast(ClusterFinder, None)))
    await asyncio.sleep(0)
    grid._attached = SimpleNamespace(topology=Topology(("one:1", "two:2", "three:3"), {}))  # type: ignore[arg-type]
    grid.batcher.batchers = [Silent(), Silent(), Silent()]
    await following
