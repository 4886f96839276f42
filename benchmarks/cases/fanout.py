"""Many subscribers of one topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from benchmarks.cases.base import OURS, Case, Context, Figure, Reference, Row, Target
from benchmarks.cases.generated import (
    CONTESTANTS,
    CPU,
    DELIVERIES,
    GENERATOR_BUSY,
    JOINED,
    P50,
    P99,
    REDIS_CPU,
    SERVER_BUSY,
    TOTAL_CPU,
    measure,
    row,
)
from benchmarks.generator.driver import Load
from benchmarks.systems.base import StartOptions

NAME: Final = "fanout"

SATURATED: Final = "500 subscribers, as fast as it goes"
CROWD: Final = "10,000 subscribers, 100 updates/s"

SATURATED_SUBSCRIBERS: Final = 500
CROWD_SUBSCRIBERS: Final = 10_000
CROWD_RATE: Final = 100.0

WINDOW: Final = 256
"""Updates under way, the same for every system. All are at their fastest from here on (their core is full), and it is
what one client of ours may have unanswered by default (limits.requests)."""

CROWD_WINDOW: Final = 32
"""As there are 20 times as many subscribers, this is more deliveries under way than WINDOW is with 500; a system that
cannot keep up then needs seconds, not minutes, to finish."""

CROWD_CONTESTANTS: Final = (OURS, "nchan", "nats", "socketio", "c_floor")
"""Without python-socketio, which would take minutes, and mosquitto, which has not been tried with so many."""

WARM_UP: Final = 0.7
MEASURE: Final = 4.0
"""Seconds: with 2 the rounds of a peer lay up to 88 % apart. Where they still lie far apart, the range is shown."""


def saturating(context: Context) -> Load:
    """Return the load of the saturated variant."""
    return saturating_with(SATURATED_SUBSCRIBERS, context)


def saturating_with(subscribers: int, context: Context) -> Load:
    """Return the same load for another number of subscribers, for cases that need the saturation with their own."""
    return Load(subscribers, window=WINDOW, warm_up=WARM_UP, measure=context.seconds(MEASURE))


def saturation(contestant: str) -> Reference:
    """Tell where the saturated rate of a contestant is found among the results."""
    return Reference(NAME, SATURATED, contestant, DELIVERIES.name)


def _demand(peer: str, title: str, factor: float) -> Target:
    return Target(
        f"fan-out at saturation, deliveries/s: {factor:g} x {title}", saturation(OURS), saturation(peer), factor, True
    )


class FanOut(Case):
    """See ``about``."""

    name: ClassVar[str] = NAME
    title: ClassVar[str] = "Fan-out"
    about: ClassVar[str] = (
        "All subscribers have one topic; values of 100 bytes take the real path (client, node, Redis, node, sessions). "
        f"At most {WINDOW} updates ({CROWD_WINDOW} with 10,000 subscribers) are under way: answered and received by "
        "everyone before others follow, so no system can drop, conflate or answer early to look fast."
    )
    figures: ClassVar[Sequence[Figure]] = (
        DELIVERIES, JOINED, TOTAL_CPU, CPU, REDIS_CPU, P50, P99, SERVER_BUSY, GENERATOR_BUSY,
    )  # fmt: skip
    contestants: ClassVar[Sequence[str]] = CONTESTANTS
    targets: ClassVar[Sequence[Target]] = (
        _demand("nchan", "nchan", 3),
        _demand("socketio", "Socket.IO", 4),
        _demand("c_floor", "the C floor", 2),
    )

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        """See ``Case``."""
        system = context.systems[contestant]
        loads = {SATURATED: saturating(context)}
        if contestant in CROWD_CONTESTANTS:
            loads[CROWD] = self._crowd(context)
        with system.running(context.placement, StartOptions(connections=CROWD_SUBSCRIBERS)) as running:
            return [
                row(self.name, variant, contestant, load, measure(running, load, context))
                for variant, load in loads.items()
            ]

    def _crowd(self, context: Context) -> Load:
        return Load(
            CROWD_SUBSCRIBERS,
            rate=CROWD_RATE,
            window=CROWD_WINDOW,
            warm_up=WARM_UP,
            measure=context.seconds(MEASURE),
        )
