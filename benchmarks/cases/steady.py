"""Paced updates: what one delivery costs and how long it takes when nothing piles up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import ClassVar, Final

from benchmarks.cases.base import OURS, Case, Context, Figure, Reference, Row, Target
from benchmarks.cases.fanout import saturating_with
from benchmarks.cases.generated import (
    CPU,
    DELIVERIES,
    GENERATOR_BUSY,
    P50,
    P99,
    P999,
    REDIS_CPU,
    SERVER_BUSY,
    TOTAL_CPU,
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

SATURATION_TRIES: Final = 3
"""Starts of which the median is taken: nchan joins frames in one run and hardly any in the next."""

WARM_UP: Final = 0.7
MEASURE: Final = 4.0
"""Seconds: with 2 the rounds of a peer lay up to 88 % apart. Where they still lie far apart, the range is shown."""


class Steady(Case):
    """See ``about``."""

    name: ClassVar[str] = "steady"
    title: ClassVar[str] = "Steady"
    about: ClassVar[str] = (
        "Updates of one topic by a schedule that waits for nobody. Latencies run from the time on the schedule until a "
        "subscriber has the value, so the ones that a slow system delays count in full (no coordinated omission)."
    )
    figures: ClassVar[Sequence[Figure]] = (
        TOTAL_CPU, CPU, REDIS_CPU, P50, P99, P999, DELIVERIES, SERVER_BUSY, GENERATOR_BUSY,
    )  # fmt: skip
    contestants: ClassVar[Sequence[str]] = (OURS, "nchan", "nats", "mosquitto", "socketio", "c_floor")
    targets: ClassVar[Sequence[Target]] = (
        Target(
            "steady, CPU per delivery, all processes: no more than nchan's",
            Reference("steady", PACED, OURS, TOTAL_CPU.name),
            Reference("steady", PACED, "nchan", TOTAL_CPU.name),
            factor=1,
            at_least=False,
        ),
        Target(
            "steady, CPU per delivery, all processes: 1.5 x the C floor",
            Reference("steady", PACED, OURS, TOTAL_CPU.name),
            Reference("steady", PACED, "c_floor", TOTAL_CPU.name),
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
        halves = {HALF_OF_OWN: contestant}
        if YARDSTICK in context.systems:
            halves[HALF_OF_NCHAN] = YARDSTICK
        most = {variant: self._most(whose, context) for variant, whose in halves.items()}
        rates = {PACED: RATE} | {variant: each / SUBSCRIBERS / 2 for variant, each in most.items()}
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
                made = row(self.name, variant, contestant, load, measure(running, load, context))
                if variant in most:
                    made = replace(made, details={**made.details, "saturation": most[variant]})
                rows.append(made)
        return rows

    def _most(self, contestant: str, context: Context) -> float:
        """Tell the deliveries per second that *contestant* can do at most with the subscribers of this case.

        It is measured once in a run, and is the same for all rounds and contestants: with other subscribers (those of
        fan-out) a system has another saturation, and half of that is not half of this.
        """
        if contestant not in self._saturation:
            tries = 1 if context.quick else SATURATION_TRIES
            self._saturation[contestant] = median(_measure_saturation(contestant, context) for _ in range(tries))
        return self._saturation[contestant]


def _measure_saturation(contestant: str, context: Context) -> float:
    context.progress.say(f"first, how much {contestant} can do at most")
    load = saturating_with(SUBSCRIBERS, context)
    options = StartOptions(connections=load.subscribers)
    with context.systems[contestant].running(context.placement, options) as running:
        report = measure(running, load, context)
    if report.failures:
        raise SystemFailed(f"{contestant} failed when it was saturated: {'; '.join(report.sentences())}")
    return report.deliveries_per_second
