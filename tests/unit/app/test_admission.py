"""At what pace connections are accepted, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.adapters.memory import MemoryMetrics
from gateway.app.admission import connection_limiter as admission
from gateway.app.admission.addresses import AddressKeys
from gateway.app.admission.connection_limiter import (
    ASKED_PER_ADMISSION,
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

HERE = "192.0.2.1"

A_TURN = 0.004
"""Seconds of a turn of the loop of a node that is busy."""


def connection_limiter(
    clock: VirtualClock, *, rate: float = RATE, busy: bool | Callable[[], bool] = True, wait: float = 1.0
) -> ConnectionLimiter:
    parameters = StormParameters(admission_rate=rate, admission_wait=wait, claim_rate=0.0, claims_at_once=0)
    limits = cast("Any", SimpleNamespace(address_keys=AddressKeys(())))  # nothing else is the matter here
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
        limiter.admit(Caller(accepted), address=HERE, returning=True)
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


class Crowd:
    """Connections that wait in the kernel, and what they do once they are accepted; a node that is asked for the pause.

    Args:
        limiter: of the node.
        clock: its time.
    """

    def __init__(self, limiter: ConnectionLimiter, clock: VirtualClock) -> None:
        self._limiter = limiter
        self._clock = clock

    def accepted_in_a_second(self, then: Callable[[Caller], None]) -> int:
        began, accepted = self._clock(), 0
        while self._clock() < began + 1.0:
            for _ in range(self._limiter.acceptable()):
                then(Caller([0]))
                accepted += 1
            self._clock.advance(self._limiter.pause(more=True) + A_TURN)
        return accepted


async def test_connections_are_accepted_at_the_pace_of_those_who_ask_while_there_are_others_to_serve() -> None:
    clock = VirtualClock()
    limiter = connection_limiter(clock, wait=1000.0)

    accepted = Crowd(limiter, clock).accepted_in_a_second(
        lambda caller: limiter.admit(caller, address=HERE, returning=False)
    )
    limiter.close()

    pace, burst = ASKED_PER_ADMISSION * RATE, ASKED_PER_ADMISSION * RATE * OPENING
    assert pace - SHORT.accepted <= accepted <= pace + burst + SHORT.accepted


async def test_who_asks_nothing_or_hangs_up_keeps_nobody_from_being_accepted() -> None:
    clock = VirtualClock()
    limiter = connection_limiter(clock)

    def ask_and_hang_up(caller: Caller) -> None:
        limiter.admit(caller, address=HERE, returning=False)
        limiter.withdraw(caller)

    turns = round(1 / A_TURN)
    for then in (lambda _: None, ask_and_hang_up):
        assert Crowd(limiter, clock).accepted_in_a_second(then) >= (turns - 1) * SHORT.accepted
    limiter.close()


def test_those_who_come_one_by_one_are_accepted_together() -> None:
    limiter = connection_limiter(VirtualClock())
    assert limiter.pause(more=False) == OPENING
    assert limiter.pause(more=True) == 0


async def test_a_node_with_nobody_to_serve_or_without_a_rate_accepts_all() -> None:
    for limiter in (connection_limiter(VirtualClock(), busy=False), connection_limiter(VirtualClock(), rate=0.0)):
        for _ in range(1000):
            limiter.admit(Caller([0]), address=HERE, returning=False)
        assert limiter.pause(more=True) == limiter.pause(more=False) == 0
        limiter.close()


class Refused(Caller):
    """Somebody who may be rejected, and hangs up then."""

    def __init__(self, accepted: list[int], limiter: ConnectionLimiter) -> None:
        super().__init__(accepted)
        self._limiter = limiter
        self.reason: ConnectionRejected | None = None

    def reject(self, reason: ConnectionRejected) -> None:
        self.reason = reason
        self._limiter.withdraw(self)


@pytest.mark.promise("P20")
async def test_who_has_to_make_room_is_told_when_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, accepted = VirtualClock(), [0]
    limiter = connection_limiter(clock, rate=10.0)
    monkeypatch.setattr(limiter._limits, "rejection", rejection, raising=False)
    crowd = [Refused(accepted, limiter) for _ in range(10)]
    for each in crowd:
        limiter.admit(each, address=HERE, returning=True)
    assert not [each for each in crowd if each.reason]

    alone, late = Refused(accepted, limiter), Refused(accepted, limiter)
    limiter.admit(alone, address="192.0.2.2", returning=True)
    limiter.admit(late, address=HERE, returning=True)
    limiter.close()

    assert [each.reason is not None for each in crowd] == [False] * 9 + [True]
    assert alone.reason is None
    assert late.reason is not None
    assert late.reason.retry_after >= 1
    assert set(limiter._came) == {*crowd[:9], alone}


def rejection(limit: str, why: str, retry_after: float, *, elsewhere: bool) -> ConnectionRejected:
    return ConnectionRejected(f"{limit}: {why}", limit=limit, retry_after=retry_after, elsewhere=elsewhere)
