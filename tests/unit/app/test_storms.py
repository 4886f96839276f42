"""The pace of claims, in virtual time, and what is advised about coming back."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import pytest

from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.app.admission import handshake_limiter as limiter_module
from gateway.app.admission.handshake_limiter import HandshakeLimiter
from gateway.app.admission.limits import Limits
from gateway.app.admission.reconnect_advice import NEARLY, ReconnectAdvice
from gateway.app.admission.refusals import HandshakeRefused
from gateway.app.runtime.clock import Clock
from gateway.app.runtime.parameters import StormParameters
from gateway.bootstrap.parameters import parameters_of
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from gateway.core.pacing.rates import CLOCK_ROUNDING
from gateway.core.pacing.reconnect_spread import OUTGROWN
from gateway.core.wire.codes import ErrorCode
from gateway.settings import Settings
from tests.support.clock import VirtualClock, eventually

WINDOW = 3600.0
"""Of the sessions: a quarter of it bounds the advice, and shall not here."""

RATE = 200.0
"""Claims per second of the cluster; also how long the handshake limiter's timer waits, which is of real time."""


def limiter_of(
    parameters: StormParameters,
    clock: VirtualClock,
    *,
    nodes: int = 1,
    metrics: MemoryMetrics | None = None,
    log: MemoryEventLog | None = None,
) -> HandshakeLimiter:
    metrics = metrics or MemoryMetrics()
    times = Clock(monotonic=clock)
    limits = Limits(
        parameters_of(Settings(), shared_grid=True), clock=times, metrics=metrics, log=log or MemoryEventLog()
    )
    return HandshakeLimiter(parameters, nodes=lambda: nodes, limits=limits, clock=times, metrics=metrics)


@pytest.mark.parametrize("nodes", [1, 2])
async def test_each_node_lets_its_share_of_the_claims_through(monkeypatch: pytest.MonkeyPatch, nodes: int) -> None:
    monkeypatch.setattr(limiter_module, "HANDSHAKE_WAIT", 3600.0)  # of real time, too
    clock = VirtualClock()
    parameters = StormParameters(admission_rate=0.0, admission_wait=0.0, claim_rate=RATE, claims_at_once=0)
    handshake_limiter = limiter_of(parameters, clock, nodes=nodes)
    burst = int(max(1, RATE / nodes * limiter_module.CLAIM_BURST))
    claims = [asyncio.create_task(handshake_limiter.enter(returning=True)) for _ in range(burst + 9)]

    def through() -> int:
        return sum(claim.done() for claim in claims)

    for more in range(10):
        await eventually(lambda more=more: through() >= burst + more)  # type: ignore[misc]
        for _ in range(3):
            handshake_limiter._next()
            await asyncio.sleep(0)
        assert through() == burst + more, "no more while the clock stands still"
        clock.advance(nodes / RATE)
    await asyncio.gather(*claims)
    handshake_limiter.close()


def one_at_a_time(clock: VirtualClock, metrics: MemoryMetrics) -> HandshakeLimiter:
    parameters = StormParameters(admission_rate=0.0, admission_wait=0.0, claim_rate=0.0, claims_at_once=1)
    return limiter_of(parameters, clock, metrics=metrics)


async def test_a_place_is_taken_at_once_only_if_there_is_one_and_nobody_waits() -> None:
    metrics = MemoryMetrics()
    limiter = one_at_a_time(VirtualClock(), metrics)
    assert limiter.enter_at_once()
    assert not limiter.enter_at_once(), "there is one place"
    waiting = asyncio.create_task(limiter.enter(returning=True))
    await eventually(lambda: metrics.gauge(catalogue.HANDSHAKES_WAITING) == 1)
    limiter._parameters = replace(limiter._parameters, claims_at_once=2)
    assert not limiter.enter_at_once(), "somebody came before"
    limiter.leave()
    await waiting
    assert limiter.enter_at_once()
    limiter.close()


@pytest.mark.promise("P20")
async def test_one_in_eight_is_new_however_many_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter_module, "HANDSHAKE_WAIT", 3600.0)  # of real time, too
    metrics = MemoryMetrics()
    limiter = one_at_a_time(VirtualClock(), metrics)
    assert limiter.enter_at_once()
    through: list[str] = []

    async def come(kind: str) -> None:
        await limiter.enter(returning=kind == "back")
        through.append(kind)
        limiter.leave()

    coming = [asyncio.create_task(come(kind)) for kind in ["new"] * 3 + ["back"] * 40]
    await eventually(lambda: metrics.gauge(catalogue.HANDSHAKES_WAITING) == len(coming))
    limiter.leave()
    await asyncio.gather(*coming)
    assert [place for place, kind in enumerate(through) if kind == "new"] == [7, 15, 23]
    limiter.close()


async def test_whoever_waits_too_long_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter_module, "HANDSHAKE_WAIT", 0.01)
    clock, metrics = VirtualClock(), MemoryMetrics()
    handshake_limiter = one_at_a_time(clock, metrics)
    await handshake_limiter.enter(returning=True)
    early = [asyncio.create_task(handshake_limiter.enter(returning=returning)) for returning in (True, False)]
    await asyncio.sleep(0)
    clock.advance(0.006)
    late = asyncio.create_task(handshake_limiter.enter(returning=True))
    await asyncio.sleep(0)
    assert metrics.gauge(catalogue.HANDSHAKES_WAITING) == 3
    clock.advance(0.006)
    for refused in await asyncio.gather(*early, return_exceptions=True):
        assert isinstance(refused, HandshakeRefused)
        assert refused.error.code is ErrorCode.TRY_LATER
    assert not late.done()
    handshake_limiter.leave()
    await late
    handshake_limiter.leave()
    await handshake_limiter.enter(returning=False)
    assert metrics.gauge(catalogue.HANDSHAKES_WAITING) == 0
    handshake_limiter.close()


@pytest.mark.parametrize(
    ("rate", "at_once", "named", "said"),
    [
        (0.0, 1, "claims_at_once", "this node answers 1 first packets at a time"),
        (RATE, 1, "claims_at_once", "this node answers 1 first packets at a time"),
        (0.5, 0, "claim_rate", "more clients come than the 0.5 a second that the cluster takes on"),
        (0.5, 2, "claim_rate", "more clients come than the 0.5 a second that the cluster takes on"),
    ],
)
async def test_whoever_waits_too_long_hears_what_held_the_line(
    monkeypatch: pytest.MonkeyPatch, rate: float, at_once: int, named: str, said: str
) -> None:
    """Bug: it was always called the pace of claims, though handshakes of this node took too long."""
    monkeypatch.setattr(limiter_module, "HANDSHAKE_WAIT", 0.0)
    parameters = StormParameters(admission_rate=0.0, admission_wait=0.0, claim_rate=rate, claims_at_once=at_once)
    clock, metrics, log = VirtualClock(), MemoryMetrics(), MemoryEventLog()
    handshake_limiter = limiter_of(parameters, clock, metrics=metrics, log=log)
    await handshake_limiter.enter(returning=True)
    with pytest.raises(HandshakeRefused, match=f"^{named}: {said}") as refused:
        await handshake_limiter.enter(returning=True)
    assert refused.value.error.code is ErrorCode.TRY_LATER
    assert metrics.counts(catalogue.LIMITS_EXCEEDED) == {named: 1}
    assert log.of(events.LIMIT_EXCEEDED) == [{"limit": named, "who": ""}]
    handshake_limiter.close()


async def test_whoever_leaves_in_the_moment_of_the_refusal_had_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter_module, "HANDSHAKE_WAIT", 0.0)
    handshake_limiter = one_at_a_time(VirtualClock(), MemoryMetrics())
    await handshake_limiter.enter(returning=True)
    waiting = asyncio.create_task(handshake_limiter.enter(returning=True))
    await asyncio.sleep(0)
    handshake_limiter._on_time()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert handshake_limiter._inside == 1
    handshake_limiter.close()


@pytest.mark.parametrize("let_through", [False, True])
async def test_whoever_leaves_the_line_takes_no_place(let_through: bool) -> None:
    metrics = MemoryMetrics()
    handshake_limiter = one_at_a_time(VirtualClock(), metrics)
    await handshake_limiter.enter(returning=True)
    one, other = (asyncio.create_task(handshake_limiter.enter(returning=True)) for _ in range(2))
    await asyncio.sleep(0)
    if let_through:
        handshake_limiter.leave()
    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    if not let_through:
        assert metrics.gauge(catalogue.HANDSHAKES_WAITING) == 1
        handshake_limiter.leave()
    await other
    handshake_limiter.close()


class Creeping(VirtualClock):
    """A clock that goes on by itself between two looks at it, as real ones do."""

    step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


async def test_a_timer_that_fires_a_hair_early_is_set_again() -> None:
    """Bug: whose timer came early asked a second time how long to wait, heard that it was time now, and set none."""
    clock = Creeping()
    parameters = StormParameters(admission_rate=0.0, admission_wait=0.0, claim_rate=RATE, claims_at_once=0)
    handshake_limiter = limiter_of(parameters, clock)
    for _ in range(int(RATE * limiter_module.CLAIM_BURST)):
        await handshake_limiter.enter(returning=True)
    waiting = asyncio.create_task(handshake_limiter.enter(returning=True))
    await asyncio.sleep(0)
    # At its first look there are still some microseconds left, at the next there are none.
    clock.step = 3 * CLOCK_ROUNDING
    clock.advance(1 / RATE - 2 * clock.step)
    await waiting
    handshake_limiter.close()


# --- Advice -----------------------------------------------------------------------------------------------------------


class Cluster:
    """What advice depends on, to be changed at will."""

    def __init__(self) -> None:
        self.sessions = 0
        self.nodes = 3
        self.clock = VirtualClock()
        settings = Settings(window_default=WINDOW, window_maximum=WINDOW, admission_rate=100.0, claim_rate=0.0)
        self.reconnect_advice = ReconnectAdvice(
            parameters_of(settings, shared_grid=True),
            sessions=lambda: self.sessions,
            nodes=lambda: self.nodes,
            clock=Clock(monotonic=self.clock),
            metrics=MemoryMetrics(),
        )

    @property
    def advised(self) -> float:
        """How many clients the advice is for, by the formula of ADR 0022."""
        survivors = self.nodes - 1
        return self.reconnect_advice.advice().initial * survivors * 100.0 / OUTGROWN


def test_the_advice_is_for_all_sessions_to_within_a_hundredth() -> None:
    cluster = Cluster()
    for sessions in [*range(50, 3000), *range(3000, 50, -7)]:
        cluster.sessions = sessions
        assert abs(cluster.advised - sessions) <= NEARLY * cluster.advised
        if sessions < 1 / NEARLY:
            assert cluster.advised == pytest.approx(sessions)


def test_advice_is_not_reckoned_anew_for_each_of_many() -> None:
    cluster = Cluster()
    told = set()
    for cluster.sessions in range(1000, 2000):
        told.add(id(cluster.reconnect_advice.advice()))
    assert len(told) <= 1 + math.log(2) / math.log(1 + NEARLY)


def test_a_node_that_comes_or_goes_changes_the_advice_at_once() -> None:
    cluster = Cluster()
    cluster.sessions = 1000
    assert cluster.reconnect_advice.advice().initial == pytest.approx(7.5)
    cluster.nodes = 2
    assert cluster.reconnect_advice.advice().initial == pytest.approx(15.0)


def test_sessions_that_are_still_to_come_back_count_for_as_long_as_they_may_come() -> None:
    cluster = Cluster()
    cluster.sessions = 1000
    cluster.reconnect_advice.orphaned(500)
    assert cluster.advised == pytest.approx(1500)
    for _ in range(100):
        cluster.reconnect_advice.returned()
    assert cluster.advised == pytest.approx(1400)
    cluster.clock.advance(WINDOW)
    assert cluster.advised == pytest.approx(1000)
