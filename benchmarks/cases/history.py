"""Topics with history: what it costs to keep events, and to read them again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar, Final

from benchmarks.cases.base import OURS, Better, Case, Context, Figure, Reference, Row, Target
from benchmarks.destinations.jetstream import measure_replay
from benchmarks.destinations.rates import EVENTS, QUICK_SHARE, Rate, declared, measure_history
from benchmarks.publish_cost import AT_ONCE, KEPT, STEADY, TOPICS, contestant
from benchmarks.systems.base import StartOptions
from benchmarks.systems.jetstream import JetStream, JetStreamFile

_NAME: Final = "history"
WITHOUT: Final = "without history"
"""The same publishes, to topics that keep their last value alone."""
READ: Final = f"{EVENTS:,} events read from the first one on"
_MOST: Final = 1.4
"""Times the CPU of Redis for a publish without history, at most."""
_EVENTS_PER_CORE: Final = 100_000.0
"""Events a second of a core of the node, at least."""
TURNS: Final = 6
"""Of which the least counts; one more before them, in which topics are made and allocators grow."""

PER_CORE: Final = Figure("per_core", "events/s and core of the server", "/s", Better.HIGHER, 0)
RATE: Final = Figure("rate", "events/s, all on this machine", "/s", Better.HIGHER, 0)
SERVER_CPU: Final = Figure("server_cpu", "server CPU / event", "µs", Better.LOWER, 2)
STORE_CPU: Final = Figure("redis_cpu", "Redis CPU / event", "µs", Better.LOWER, 2)


def publishing(at_once: str) -> str:
    """Name a workload of publishes."""
    return f"publishes, {at_once}"


class HistoryCase(Case):
    """See ``about``."""

    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "Topics with history"
    about: ClassVar[str] = (
        f"First, what redis-server takes for a publish of 100 bytes to one of {TOPICS} topics after the other, with "
        "history and without: by the adapter of a node, without sockets, the least of six turns of 2,000. Then one "
        f"reader is sent {EVENTS:,} events of one topic, from socket to socket. JetStream reads from a stream of its "
        "own, over TCP; readers are written in Python, for all, and not counted."
    )
    figures: ClassVar[Sequence[Figure]] = (STORE_CPU, SERVER_CPU, PER_CORE, RATE)
    contestants: ClassVar[Sequence[str]] = (OURS, WITHOUT, JetStream.name, JetStreamFile.name)
    targets: ClassVar[Sequence[Target]] = (
        *(
            Target(
                f"history: Redis at most {_MOST:g} times a publish without, {at_once}",
                Reference(_NAME, publishing(at_once), OURS, STORE_CPU.name),
                Reference(_NAME, publishing(at_once), WITHOUT, STORE_CPU.name),
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
        if contestant == WITHOUT:
            return _publishes(contestant, STEADY, context)
        events = EVENTS // QUICK_SHARE if context.quick else EVENTS
        context.progress.say(f"history: {events:,} events, {contestant}")
        system = context.systems[contestant]
        if isinstance(system, JetStream):
            with system.running(context.placement, StartOptions()) as running:
                measuring = measure_replay(running, storage=system.storage, events=events)
                return [_read(contestant, asyncio.run(measuring))]
        rows = _publishes(contestant, KEPT, context)
        with declared(context.folder) as options, system.running(context.placement, options) as running:
            return [*rows, _read(contestant, asyncio.run(measure_history(running, events=events)))]


def _publishes(name: str, kind: str, context: Context) -> list[Row]:
    context.progress.say(f"history: publishes, {name}")
    rows = []
    with contestant(context.checkout.folder, context.placement) as publisher:
        for title, at_once in AT_ONCE.items():
            publisher.cost(at_once, kind)
            costs = [publisher.cost(at_once, kind) for _ in range(TURNS)]
            rows.append(Row(_NAME, publishing(title), name, {STORE_CPU.name: min(costs)}, details={"turns": costs}))
    return rows


def _read(name: str, rate: Rate) -> Row:
    values = {PER_CORE.name: rate.per_core, RATE.name: rate.per_second, SERVER_CPU.name: rate.server_microseconds}
    if rate.redis:
        values[STORE_CPU.name] = rate.redis_microseconds
    return Row(_NAME, READ, name, values)
