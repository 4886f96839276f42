"""Topics with history: what it costs to keep events, and to read them again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import ClassVar, Final

from benchmarks.cases.base import OURS, Better, Case, Context, Figure, Reference, Row, Target
from benchmarks.destinations.centrifugo import measure_recovery
from benchmarks.destinations.jetstream import measure_replay
from benchmarks.destinations.rates import EVENTS, QUICK_SHARE, Rate, declared, measure_history
from benchmarks.paired import Ratio
from benchmarks.publish_cost import AT_ONCE, TOPICS, contestant, with_and_without_history
from benchmarks.systems.base import Running, StartOptions, SystemUnderTest
from benchmarks.systems.centrifugo import Centrifugo, CentrifugoRedis
from benchmarks.systems.jetstream import JetStream, JetStreamFile

_NAME: Final = "history"
READ: Final = f"{EVENTS:,} events read from the first one on"
_MOST: Final = 1.4
"""Times the CPU of Redis for a publish without history, at most."""
_EVENTS_PER_CORE: Final = 100_000.0
"""Events a second of a core of the node, at least."""
TURNS: Final = 12
"""Of each kind, a turn with history beside one without; the figure is the median of what they say."""

PER_CORE: Final = Figure("per_core", "events/s and core of the server", "/s", Better.HIGHER, 0)
RATE: Final = Figure("rate", "events/s, all on this machine", "/s", Better.HIGHER, 0)
SERVER_CPU: Final = Figure("server_cpu", "server CPU / event", "µs", Better.LOWER, 2)
STORE_CPU: Final = Figure("redis_cpu", "Redis CPU / event", "µs", Better.LOWER, 2)
WITHOUT: Final = Figure("redis_cpu_without", "without history", "µs", Better.LOWER, 2)
TIMES: Final = Figure("times", "times one without", "x", Better.LOWER, 2)


def publishing(at_once: str) -> str:
    """Name a workload of publishes."""
    return f"publishes, {at_once}"


class HistoryCase(Case):
    """See ``about``."""

    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "Topics with history"
    about: ClassVar[str] = (
        f"First, what redis-server takes for a publish of 100 bytes to one of {TOPICS} topics after the other, with "
        f"history and without: by the adapter of a node, without sockets, {TURNS} turns of 2,000 of each in one Redis, "
        f"compared turn by turn. Then one reader is sent {EVENTS:,} events of one topic, from socket to socket. "
        "JetStream reads from a stream of its own, over TCP; Centrifugo recovers a channel, in one message. Readers "
        "are written in Python, for all, and not counted."
    )
    figures: ClassVar[Sequence[Figure]] = (TIMES, STORE_CPU, WITHOUT, SERVER_CPU, PER_CORE, RATE)
    contestants: ClassVar[Sequence[str]] = (
        OURS,
        JetStream.name,
        JetStreamFile.name,
        Centrifugo.name,
        CentrifugoRedis.name,
    )
    targets: ClassVar[Sequence[Target]] = (
        *(
            Target(
                f"history: Redis at most {_MOST:g} times a publish without, {at_once}",
                Reference(_NAME, publishing(at_once), OURS, TIMES.name),
                None,
                factor=_MOST,
                at_least=False,
            )
            for at_once in AT_ONCE
        ),
        Target(
            f"history: at least {_EVENTS_PER_CORE:,.0f} events read a second and core of the node",
            Reference(_NAME, READ, OURS, PER_CORE.name),
            None,
            factor=_EVENTS_PER_CORE,
            at_least=True,
        ),
    )
    apart: ClassVar[str] = "the published run is older than it"

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        """See ``Case``."""
        events = EVENTS // QUICK_SHARE if context.quick else EVENTS
        rows = _publishes(context) if contestant == OURS else []
        context.progress.say(f"history: {events:,} events, {contestant}")
        system = context.systems[contestant]
        with contextlib.ExitStack() as stack:
            options = stack.enter_context(declared(context.folder)) if contestant == OURS else StartOptions()
            running = stack.enter_context(system.running(context.placement, options))
            rate = asyncio.run(_measure(system, running, events))
        values = {PER_CORE.name: rate.per_core, RATE.name: rate.per_second, SERVER_CPU.name: rate.server_microseconds}
        if rate.redis:
            values[STORE_CPU.name] = rate.redis_microseconds
        return [*rows, Row(_NAME, READ, contestant, values)]


async def _measure(system: SystemUnderTest, running: Running, events: int) -> Rate:
    match system:
        case JetStream():
            return await measure_replay(running, storage=system.storage, events=events)
        case Centrifugo():
            return await measure_recovery(running, events=events)
        case _:
            return await measure_history(running, events=events)


def _publishes(context: Context) -> list[Row]:
    rows = []
    with contestant(context.checkout.folder, context.placement) as publisher:
        for title, at_once in AT_ONCE.items():
            context.progress.say(f"history: publishes, {title}")
            without, kept = with_and_without_history(publisher, at_once, TURNS)
            values = {
                TIMES.name: Ratio.of(without, kept).middle,
                STORE_CPU.name: min(kept),
                WITHOUT.name: min(without),
            }
            details = {"without": without, "with": kept}
            rows.append(Row(_NAME, publishing(title), OURS, values, details=details))
    return rows
