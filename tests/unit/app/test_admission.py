"""At what pace connections are accepted, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from gateway.adapters.memory import MemoryMetrics
from gateway.app.admission import connection_limiter as admission
from gateway.app.admission.connection_limiter import (
    ACCEPTED_PER_ADMISSION,
    LONG,
    OPENING,
    SHORT,
    ConnectionLimiter,
    TurnSize,
)
from gateway.app.runtime.clock import Clock
from gateway.app.runtime.parameters import StormParameters
from gateway.ports import ConnectionRejected
from tests.support.clock import VirtualClock

RATE = 1000.0


def connection_limiter(
    clock: VirtualClock, *, rate: float = RATE, busy: bool | Callable[[], bool] = True
) -> ConnectionLimiter:
    parameters = StormParameters(admission_rate=rate, admission_wait=1.0, claim_rate=0.0, claims_at_once=0)
    limits = cast("Any", None)  # asked about addresses, which are not the matter here
    times = Clock(monotonic=clock)
    is_busy = busy if callable(busy) else lambda: busy
    return ConnectionLimiter(limits, parameters, busy=is_busy, longest=10.0, clock=times, metrics=MemoryMetrics())


class Caller:
    """Somebody at the limiter, who notes when it was admitted."""

    def __init__(self, accepted: list[int]) -> None:
        self._accepted = accepted

    def accept(self) -> None:
        self._accepted[-1] += 1

    def reject(self, reason: ConnectionRejected) -> None:
        raise AssertionError(reason)


@pytest.mark.parametrize(("busy", "turn"), [(True, SHORT), (False, LONG)], ids=["busy", "idle"])
async def test_turns_are_short_while_there_are_others_to_serve_and_long_else(
    monkeypatch: pytest.MonkeyPatch, busy: bool, turn: TurnSize
) -> None:
    monkeypatch.setattr(admission, "OPENING", 0.0)  # of real time: the limiter opens in each turn of the loop
    limiter = connection_limiter(VirtualClock(), rate=10_000.0, busy=busy)
    assert limiter.acceptable() == turn.accepted

    accepted = [0]
    for _ in range(2 * LONG.admitted):
        limiter.admit(Caller(accepted), returning=True)
    while sum(accepted) < 2 * LONG.admitted:
        accepted.append(0)
        await asyncio.sleep(0)
    limiter.close()

    assert [each for each in accepted if each] == [turn.admitted] * (2 * LONG.admitted // turn.admitted)


def test_a_turn_is_as_long_as_the_node_is_busy_when_it_begins() -> None:
    busy = False
    limiter = connection_limiter(VirtualClock(), busy=lambda: busy)
    assert limiter.acceptable() == LONG.accepted
    busy = True
    assert limiter.acceptable() == SHORT.accepted


def test_connections_are_accepted_at_a_pace_while_there_are_others_to_serve() -> None:
    clock = VirtualClock()
    limiter = connection_limiter(clock)
    began, accepted = clock(), 0
    while clock() < began + 1.0:
        accepted += 16
        clock.advance(limiter.accepted(16))

    pace, burst = ACCEPTED_PER_ADMISSION * RATE, ACCEPTED_PER_ADMISSION * RATE * OPENING
    # As 16 in an opening are less than that, the burst is used in part.
    assert min(pace, 16 / OPENING) - 16 <= accepted <= pace + burst + 16


def test_those_who_come_one_by_one_are_accepted_together() -> None:
    limiter = connection_limiter(VirtualClock())
    assert limiter.accepted(1) == OPENING


def test_a_node_with_nobody_to_serve_or_without_a_rate_accepts_all() -> None:
    for limiter in (connection_limiter(VirtualClock(), busy=False), connection_limiter(VirtualClock(), rate=0.0)):
        assert [limiter.accepted(16) for _ in range(1000)] == [0.0] * 1000
