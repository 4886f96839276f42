"""What the journal is told about once a minute, whatever is done to the clock meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.app.operations import minutes
from gateway.app.operations.minutes import INTERVAL
from gateway.app.runtime.clock import Clock
from tests.support.clock import VirtualClock

HOUR = 3600.0


@pytest.mark.parametrize("step", [0.0, -HOUR, HOUR])
async def test_a_minute_is_a_minute_if_the_clock_is_set_in_it(step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline divides what was counted by the time that the record says."""
    monotonic, wall = VirtualClock(100.0), VirtualClock(1_700_000_000.0)
    told: list[float] = []

    async def slept(seconds: float) -> None:
        assert seconds == INTERVAL
        monotonic.advance(seconds)
        wall.now += seconds + step

    def measured(since: float, *_: object, **_named: object) -> None:
        told.append(since)
        journal.traffic = None

    journal: Any = SimpleNamespace(
        traffic=SimpleNamespace(take=lambda: (None, {})),
        measured=measured,
        queues=SimpleNamespace(take=lambda: ()),
        zones=SimpleNamespace(take=dict),
        measured_queues=lambda since, _: told.append(since),
        measured_links=lambda since, _: told.append(since),
    )
    context: Any = SimpleNamespace(clock=Clock(monotonic=monotonic, wall=wall), journal=journal)
    monkeypatch.setattr(asyncio, "sleep", slept)
    await minutes.measure(context, connections=lambda: 0, sessions=lambda: 0)
    assert told == [pytest.approx(wall() - INTERVAL)] * 3, "of traffic, of queues and of links"
