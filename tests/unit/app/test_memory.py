"""Memory that runs short, in virtual time."""

from __future__ import annotations

from typing import Any, cast

from gateway.adapters.memory import MadeUpMemory, MemoryEventLog, MemoryMetrics
from gateway.app.admission.limits import Limits
from gateway.app.admission.memory import ENOUGH_AT, HOLD, PACE, SHED_AT, Memory
from gateway.app.runtime.clock import Clock
from gateway.catalogue import log_events as events
from gateway.catalogue import metrics as catalogue
from tests.support.clock import VirtualClock


class _Limits:
    memory_short = False


class Bench:
    def __init__(self) -> None:
        self.clock = VirtualClock(100.0)
        self.process = MadeUpMemory(used=100, most=1000)
        self.limits = _Limits()
        self.log = MemoryEventLog()
        self.metrics = MemoryMetrics()
        self.memory = Memory(
            self.process,
            limits=cast("Limits", self.limits),
            clock=Clock(monotonic=self.clock),
            metrics=self.metrics,
            log=self.log,
        )
        self.memory.shed = self._shed
        self.left = 3

    def _shed(self) -> tuple[int, int]:
        shed, self.left = min(2, self.left), max(0, self.left - 2)
        return shed, 0

    def used(self, share: float) -> None:
        self.process.used = round(share * self.process.most)
        self.memory.look()

    def short(self) -> bool:
        return self.limits.memory_short

    def told(self) -> list[dict[str, Any]]:
        return self.log.of(events.MEMORY_RAN_SHORT)


async def test_load_is_shed_before_the_end_until_there_is_enough_again() -> None:
    bench = Bench()
    bench.used(SHED_AT - 0.01)
    assert not bench.short()
    assert bench.told() == []
    bench.used(SHED_AT)
    assert bench.short()
    assert bench.told() == [{"why": "850 of 1000 bytes are used", "buffers": 2, "copies": 0}]
    assert bench.process.releases == 1
    bench.clock.advance(PACE)
    bench.used(SHED_AT)
    assert bench.left == 0, "it goes on as long as there is something to shed"
    bench.used((SHED_AT + ENOUGH_AT) / 2)
    assert bench.short(), "it does not go to and fro"
    bench.used(ENOUGH_AT)
    assert not bench.short()
    assert bench.log.of(events.MEMORY_SUFFICIENT) == [{"used": 800}]


async def test_it_neither_fills_the_log_nor_looks_all_the_time_for_what_is_not_there() -> None:
    bench = Bench()
    bench.left = 0
    for _ in range(40):
        bench.used(0.99)
        bench.clock.advance(HOLD / 10)
    assert len(bench.told()) == 4
    assert bench.metrics.count(catalogue.MEMORY_SHEDDINGS) == 4


async def test_an_allocation_that_failed_counts_whatever_the_numbers_say() -> None:
    bench = Bench()
    bench.memory.exhausted("to take in what a client said")
    assert bench.short()
    assert bench.told() == [{"why": "an allocation failed: to take in what a client said", "buffers": 2, "copies": 0}]
    bench.used(0.1)
    assert bench.short(), "for a while"
    bench.clock.advance(HOLD)
    bench.used(0.1)
    assert not bench.short()


async def test_what_cannot_be_shed_for_want_of_memory_is_no_error() -> None:
    bench = Bench()

    def fails() -> tuple[int, int]:
        raise MemoryError

    bench.memory.shed = fails
    bench.used(0.9)
    assert bench.short()


async def test_without_a_known_bound_nothing_is_shed() -> None:
    bench = Bench()
    bench.process.most = 0
    bench.process.used = 10**15
    bench.memory.look()
    assert not bench.short()
