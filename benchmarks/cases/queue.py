"""Queues, beside work queues of NATS JetStream."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar, Final

from benchmarks.cases.base import OURS, Better, Case, Context, Figure, Reference, Row, Target
from benchmarks.checkout import THIS
from benchmarks.destinations import grid_queue
from benchmarks.destinations.jetstream import measure_work_queue
from benchmarks.destinations.rates import (
    CONSUMERS,
    MESSAGES,
    QUICK_SHARE,
    UNDER_WAY,
    Rate,
    declared,
    measure_queue,
)
from benchmarks.processes import redis_server
from benchmarks.systems.base import StartOptions
from benchmarks.systems.jetstream import JetStream, JetStreamFile

_NAME: Final = "queue"
EACH: Final = "each message acknowledged by itself"
IN_PASSING: Final = "acknowledged together (`auto`)"
_ACKNOWLEDGED: Final = {EACH: "each", IN_PASSING: "auto"}
_TOGETHER: Final = max(grid_queue.BATCHES)
GRID_ALONE: Final = f"the grid alone, {_TOGETHER} messages together"
_MOST_REDIS: Final = 25.0
"""Microseconds of Redis for a message in batches, at most."""

RATE: Final = Figure("rate", "messages/s, all on this machine", "/s", Better.HIGHER, 0)
TOTAL_CPU: Final = Figure("total_cpu", "CPU / message, all processes", "µs", Better.LOWER)
SERVER_CPU: Final = Figure("server_cpu", "… the server's", "µs", Better.LOWER)
STORE_CPU: Final = Figure("redis_cpu", "… Redis's", "µs", Better.LOWER)


class QueueCase(Case):
    """See ``about``."""

    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "A work queue"
    about: ClassVar[str] = (
        f"{MESSAGES:,} messages of 100 letters from one producer, {UNDER_WAY} under way and each confirmed, to "
        f"{CONSUMERS} consumers that acknowledge all of them. Nobody forces a message to the disk before it is "
        "confirmed: Redis runs without AOF and snapshots, JetStream's files are forced every two minutes. Clients are "
        "written in Python, for all: what they take is not counted, but bounds the rate. JetStream, one process over "
        "TCP, has no sessions that go on elsewhere. *The grid alone* is the adapter of a node with its Redis, without "
        "sockets; the least of its rounds."
    )
    figures: ClassVar[Sequence[Figure]] = (RATE, TOTAL_CPU, SERVER_CPU, STORE_CPU)
    contestants: ClassVar[Sequence[str]] = (OURS, JetStream.name, JetStreamFile.name)
    targets: ClassVar[Sequence[Target]] = (
        Target(
            f"queue: at most {_MOST_REDIS:.0f} µs of Redis a message in batches",
            Reference(_NAME, GRID_ALONE, OURS, STORE_CPU.name),
            None,
            factor=_MOST_REDIS,
            at_least=False,
        ),
    )
    apart: ClassVar[str] = "the published run is older than it"

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        """See ``Case``."""
        messages = MESSAGES // QUICK_SHARE if context.quick else MESSAGES
        context.progress.say(f"queue: {messages:,} messages, {contestant}")
        system = context.systems[contestant]
        if isinstance(system, JetStream):
            with system.running(context.placement, StartOptions()) as running:
                measuring = measure_work_queue(running, storage=system.storage, messages=messages)
                return [_row(EACH, contestant, asyncio.run(measuring))]
        with declared(context.folder) as options, system.running(context.placement, options) as running:
            rows = [
                _row(variant, contestant, asyncio.run(measure_queue(running, ack=ack, messages=messages)))
                for variant, ack in _ACKNOWLEDGED.items()
            ]
        if context.checkout is THIS:
            # The adapter runs in this process, so it is the one of this version.
            rows.append(_grid_alone(contestant, context))
        return rows


def _grid_alone(contestant: str, context: Context) -> Row:
    with redis_server(context.placement.server) as (redis, port):
        costs = dict(asyncio.run(grid_queue.measure(port, redis.pid)))
    values = {STORE_CPU.name: costs[_TOGETHER]}
    return Row(_NAME, GRID_ALONE, contestant, values, details={"by messages together": costs})


def _row(variant: str, contestant: str, rate: Rate) -> Row:
    values = {
        RATE.name: rate.per_second,
        TOTAL_CPU.name: rate.server_microseconds + rate.redis_microseconds,
        SERVER_CPU.name: rate.server_microseconds,
    }
    if rate.redis:
        values[STORE_CPU.name] = rate.redis_microseconds
    return Row(_NAME, variant, contestant, values)
