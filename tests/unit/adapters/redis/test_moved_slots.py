"""Slots that are moved while the grid is adopted anew."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.adapters.redis import slots
from gateway.adapters.redis.attachment import Attachment
from gateway.adapters.redis.cluster import ClusterFinder
from gateway.adapters.redis.slot_follower import SlotFollower
from gateway.adapters.redis.topology import Topology
from gateway.settings.values import HostPort


class Silent:
    """A master that must not be asked."""

    async def ask(self, _command: object) -> bytes:
        raise AssertionError("masters of one adoption are asked about those of another")


@pytest.mark.promise("P10")
async def test_masters_of_one_adoption_are_not_asked_about_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by random faults: there were more masters than before, and the task that follows slots died of it."""
    monkeypatch.setattr(slots, "FIRST_LOOK", 0.0)
    attached = before = Attachment(Topology((HostPort("one", 1), HostPort("two", 2)), {}), ())
    router: Any = SimpleNamespace(batchers=[Silent(), Silent()])
    nothing: Any = None
    follower = SlotFollower(
        finder=object.__new__(ClusterFinder),
        keys=nothing,
        router=router,
        attached=lambda: attached,
        marks=nothing,
        suspect=nothing,
        timeout=1.0,
        log=nothing,
    )
    follower.follow(before)
    (following,) = follower.tasks
    await asyncio.sleep(0)
    attached = Attachment(Topology((HostPort("one", 1), HostPort("two", 2), HostPort("three", 3)), {}), ())
    router.batchers = [Silent(), Silent(), Silent()]
    await following
