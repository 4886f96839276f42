"""At what pace connections are accepted, in virtual time."""

from __future__ import annotations

from typing import Any, cast

from gateway.adapters.memory import MemoryMetrics
from gateway.app.admission import ACCEPTED_PER_ADMISSION, OPENING, Doorkeeper
from gateway.app.clock import Clock
from gateway.app.policy import StormPolicy
from tests.support.clock import VirtualClock

RATE = 1000.0


def doorkeeper(clock: VirtualClock, *, rate: float = RATE, busy: bool = True) -> Doorkeeper:
    policy = StormPolicy(admission_rate=rate, admission_wait=1.0, claim_rate=0.0, claims_at_once=0)
    limits = cast("Any", None)  # asked about addresses, which are not the matter here
    times = Clock(monotonic=clock)
    return Doorkeeper(limits, policy, busy=lambda: busy, longest=10.0, clock=times, metrics=MemoryMetrics())


def test_connections_are_accepted_at_a_pace_while_there_are_others_to_serve() -> None:
    clock = VirtualClock()
    door = doorkeeper(clock)
    began, accepted = clock(), 0
    while clock() < began + 1.0:
        accepted += 16
        clock.advance(door.accepted(16))

    pace, burst = ACCEPTED_PER_ADMISSION * RATE, ACCEPTED_PER_ADMISSION * RATE * OPENING
    # As 16 in an opening are less than that, the burst is used in part.
    assert min(pace, 16 / OPENING) - 16 <= accepted <= pace + burst + 16


def test_those_who_come_one_by_one_are_accepted_together() -> None:
    door = doorkeeper(VirtualClock())
    assert door.accepted(1) == OPENING


def test_a_node_with_nobody_to_serve_or_without_a_rate_accepts_all() -> None:
    for door in (doorkeeper(VirtualClock(), busy=False), doorkeeper(VirtualClock(), rate=0.0)):
        assert [door.accepted(16) for _ in range(1000)] == [0.0] * 1000
