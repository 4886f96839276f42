"""A topic for each session: nothing is shared, every update is encoded for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from benchmarks.cases.base import OURS, Case, Context, Figure, Reference, Row, Target
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
from benchmarks.systems.base import StartOptions

VARIANT: Final = "2,000 sessions, 20,000 updates/s"

SUBSCRIBERS: Final = 2_000
RATE: Final = 20_000.0
"""Updates per second over all topics."""

PUBLISHERS: Final = 4
"""Connections; one client of ours may have 256 publishes unanswered, which would be the limit."""

WINDOW: Final = 1_024
"""Updates under way: 50 ms of the schedule, and four times 256."""

WARM_UP: Final = 0.7
MEASURE: Final = 2.0
"""Seconds; several short rounds in turn say more than a long one, as the machine changes between them."""


class OwnTopic(Case):
    """See ``about``."""

    name: ClassVar[str] = "own_topic"
    title: ClassVar[str] = "Own topic each"
    about: ClassVar[str] = (
        "Each session has a topic of its own, published to in turn. A delivery includes all of its publish, which for "
        "ours means that it is stored, deduplicated and confirmed."
    )
    figures: ClassVar[Sequence[Figure]] = (
        CPU, REDIS_CPU, DELIVERIES, P50, P99, P999, SERVER_BUSY, GENERATOR_BUSY,
    )  # fmt: skip
    contestants: ClassVar[Sequence[str]] = (OURS, "nchan", "socketio", "python_socketio", "c_floor")
    targets: ClassVar[Sequence[Target]] = (
        Target(
            "own topic each, CPU per delivery: half of Socket.IO's",
            Reference("own_topic", VARIANT, OURS, CPU.name),
            Reference("own_topic", VARIANT, "socketio", CPU.name),
            factor=0.5,
            at_least=False,
        ),
    )

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        """See ``Case``."""
        load = Load(
            SUBSCRIBERS,
            topics=SUBSCRIBERS,
            publishers=PUBLISHERS,
            rate=RATE,
            window=WINDOW,
            warm_up=WARM_UP,
            measure=context.seconds(MEASURE),
        )
        options = StartOptions(connections=SUBSCRIBERS)
        with context.systems[contestant].running(context.placement, options) as running:
            return [row(self.name, VARIANT, contestant, load, measure(running, load, context))]
