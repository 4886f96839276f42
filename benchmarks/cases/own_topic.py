"""A topic for each session: nothing is shared, every update is encoded for one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from benchmarks.cases.base import OURS, Case, Context, Figure, Reference, Row, Target
from benchmarks.cases.generated import (
    CONTESTANTS,
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
from benchmarks.systems.base import StartOptions

VARIANT: Final = "2,000 sessions, 20,000 updates/s"
CALM: Final = "2,000 sessions, 10,000 updates/s"
"""Half of it: a rate that Socket.IO keeps up with, so that a ratio with it can be formed."""

SUBSCRIBERS: Final = 2_000
RATES: Final = {VARIANT: 20_000.0, CALM: 10_000.0}
"""Updates per second over all topics."""

PUBLISHERS: Final = 4
"""Connections; one client of ours may have 256 publishes unanswered, which would be the limit."""

WINDOW: Final = 1_024
"""Updates under way: 50 ms of the schedule, and four times 256."""

WARM_UP: Final = 0.7
MEASURE: Final = 4.0
"""Seconds: with 2 the rounds of a peer lay up to 88 % apart. Where they still lie far apart, the range is shown."""


class OwnTopic(Case):
    """See ``about``."""

    name: ClassVar[str] = "own_topic"
    title: ClassVar[str] = "Own topic each"
    about: ClassVar[str] = (
        "Each session has a topic of its own, published to in turn. A delivery includes all of its publish, which for "
        "ours means that it is stored, deduplicated and confirmed."
    )
    figures: ClassVar[Sequence[Figure]] = (
        TOTAL_CPU, CPU, REDIS_CPU, DELIVERIES, P50, P99, P999, SERVER_BUSY, GENERATOR_BUSY,
    )  # fmt: skip
    contestants: ClassVar[Sequence[str]] = CONTESTANTS
    targets: ClassVar[Sequence[Target]] = (
        Target(
            "own topic each, CPU per delivery, all processes: half of Socket.IO's",
            Reference("own_topic", CALM, OURS, TOTAL_CPU.name),
            Reference("own_topic", CALM, "socketio", TOTAL_CPU.name),
            factor=0.5,
            at_least=False,
        ),
    )

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        """See ``Case``."""
        options = StartOptions(connections=SUBSCRIBERS)
        with context.systems[contestant].running(context.placement, options) as running:
            return [
                row(self.name, variant, contestant, load, measure(running, load, context))
                for variant, load in self._loads(context)
            ]

    def _loads(self, context: Context) -> Iterator[tuple[str, Load]]:
        for variant, rate in RATES.items():
            yield (
                variant,
                Load(
                    SUBSCRIBERS,
                    topics=SUBSCRIBERS,
                    publishers=PUBLISHERS,
                    rate=rate,
                    window=WINDOW,
                    warm_up=WARM_UP,
                    measure=context.seconds(MEASURE),
                ),
            )
