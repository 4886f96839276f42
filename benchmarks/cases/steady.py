"""Paced updates: what one delivery costs and how long it takes when nothing piles up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from benchmarks.cases.base import OURS, Case, Context, Figure, Reference, Row, Target
from benchmarks.cases.fanout import saturating, saturation
from benchmarks.cases.generated import (
    CPU,
    DELIVERIES,
    GENERATOR_BUSY,
    P50,
    P99,
    P999,
    REDIS_CPU,
    SERVER_BUSY,
    measure,
    row,
)
from benchmarks.generator.driver import Load
from benchmarks.systems.base import StartOptions, SystemFailed

PACED: Final = "1,000 subscribers, 50 updates/s"
HALF_OF_OWN: Final = "1,000 subscribers, half of its own saturation"
HALF_OF_NCHAN: Final = "1,000 subscribers, half of nchan's saturation"

YARDSTICK: Final = "nchan"

SUBSCRIBERS: Final = 1_000
RATE: Final = 50.0
"""Updates per second: each is delivered before the next comes, so that joining them is of no help."""

UNDER_WAY: Final = 1.0
"""Seconds of updates that may be under way. A system that falls behind further slows the publisher down; as latencies
count from the time on the schedule, that makes none of them shorter."""

LEAST_WINDOW: Final = 64

WARM_UP: Final = 0.7
MEASURE: Final = 2.0
"""Seconds; several short rounds in turn say more than a long one, as the machine changes between them."""


class Steady(Case):
    """See ``about``."""

    name: ClassVar[str] = "steady"
    title: ClassVar[str] = "Steady"
    about: ClassVar[str] = (
        "Updates of one topic by a schedule that waits for nobody. Latencies run from the time on the schedule until a "
        "subscriber has the value, so the ones that a slow system delays count in full (no coordinated omission)."
    )
    figures: ClassVar[Sequence[Figure]] = (
        CPU, REDIS_CPU, P50, P99, P999, DELIVERIES, SERVER_BUSY, GENERATOR_BUSY,
    )  # fmt: skip
    contestants: ClassVar[Sequence[str]] = (OURS, "nchan", "socketio", "c_floor")
    targets: ClassVar[Sequence[Target]] = (
        Target(
            "steady, CPU per delivery: no more than nchan's",
            Reference("steady", PACED, OURS, CPU.name),
            Reference("steady", PACED, "nchan", CPU.name),
            factor=1,
            at_least=False,
        ),
        Target(
            "steady, CPU per delivery: 1.5 x the C floor",
            Reference("steady", PACED, OURS, CPU.name),
            Reference("steady", PACED, "c_floor", CPU.name),
            factor=1.5,
            at_least=False,
        ),
        Target(
            "delivery latency p99 at half of nchan's saturation: below Socket.IO's",
            Reference("steady", HALF_OF_NCHAN, OURS, P99.name),
            Reference("steady", HALF_OF_NCHAN, "socketio", P99.name),
            factor=1,
            at_least=False,
        ),
        Target(
            "delivery latency p99 at half of nchan's saturation: 1.5 x nchan's",
            Reference("steady", HALF_OF_NCHAN, OURS, P99.name),
            Reference("steady", HALF_OF_NCHAN, "nchan", P99.name),
            factor=1.5,
            at_least=False,
        ),
    )

    def __init__(self) -> None:
        self._saturation: dict[str, float] = {}

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        """See ``Case``."""
        rates = {PACED: RATE, HALF_OF_OWN: self._half(contestant, context)}
        if YARDSTICK in context.systems:
            rates[HALF_OF_NCHAN] = self._half(YARDSTICK, context)
        rows = []
        with context.systems[contestant].running(context.placement, StartOptions(connections=SUBSCRIBERS)) as running:
            for variant, rate in rates.items():
                load = Load(
                    SUBSCRIBERS,
                    rate=rate,
                    window=max(LEAST_WINDOW, int(rate * UNDER_WAY)),
                    warm_up=WARM_UP,
                    measure=context.seconds(MEASURE),
                )
                rows.append(row(self.name, variant, contestant, load, measure(running, load, context)))
        return rows

    def _half(self, contestant: str, context: Context) -> float:
        """Tell the updates per second to all subscribers that are half of what *contestant* can do.

        It is taken from the fan-out results of this run, and measured here if there are none.
        """
        most = context.results.median(saturation(contestant))
        if most is None:
            if contestant not in self._saturation:
                self._saturation[contestant] = _measure_saturation(contestant, context)
            most = self._saturation[contestant]
        return most / SUBSCRIBERS / 2


def _measure_saturation(contestant: str, context: Context) -> float:
    context.progress.say(f"first, how much {contestant} can do at most")
    load = saturating(context)
    options = StartOptions(connections=load.subscribers)
    with context.systems[contestant].running(context.placement, options) as running:
        report = measure(running, load, context)
    if report.failures:
        raise SystemFailed(f"{contestant} failed when it was saturated: {'; '.join(report.sentences())}")
    return report.deliveries_per_second
