"""A node fails, and another one takes over what it has left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar, Final

from benchmarks.cases.base import OURS, Better, Case, Context, Figure, Reference, Row, Target
from benchmarks.processes import redis_server
from benchmarks.takeover import MESSAGES, SESSIONS, measure, survivors

_NAME: Final = "takeover"
VARIANT: Final = f"{SESSIONS:,} sessions, which hold {MESSAGES:,} messages"
_MOST_CPU: Final = 1.5
"""Seconds of CPU of all processes, at most."""
_LONGEST: Final = 50.0
"""Milliseconds for which another client waits, at most."""
_MILLISECONDS: Final = 1e3

TOTAL_CPU: Final = Figure("total_cpu", "CPU, all processes", "s", Better.LOWER, 2)
NODE_CPU: Final = Figure("node_cpu", "… of both nodes", "s", Better.LOWER, 2)
STORE_CPU: Final = Figure("redis_cpu", "… of Redis", "s", Better.LOWER, 2)
LONGEST: Final = Figure("longest", "update late, most", "ms", Better.LOWER)
QUIET: Final = Figure("quiet", "… while nothing happens", "ms")
TAKEN_OVER: Final = Figure("taken_over", "all taken over after", "s", Better.LOWER, 2)


class TakeoverCase(Case):
    """See ``about``."""

    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "Takeover"
    about: ClassVar[str] = (
        f"The lease of a node ends that has left {SESSIONS:,} sessions behind, which hold {MESSAGES:,} messages of 20 "
        "queues. One of two nodes takes over; then the windows end, and the messages wait for other consumers. CPU is "
        "that of both nodes and Redis for all of this, without what they take in the same time when nothing happens. "
        "A client of the survivors publishes to itself every 5 ms; how late its updates are means something only on a "
        "machine that has nothing else to do."
    )
    figures: ClassVar[Sequence[Figure]] = (TOTAL_CPU, NODE_CPU, STORE_CPU, TAKEN_OVER, LONGEST, QUIET)
    contestants: ClassVar[Sequence[str]] = (OURS,)
    targets: ClassVar[Sequence[Target]] = (
        Target(
            f"takeover: at most {_MOST_CPU:g} s of CPU in all",
            Reference(_NAME, VARIANT, OURS, TOTAL_CPU.name),
            None,
            factor=_MOST_CPU,
            at_least=False,
        ),
        Target(
            f"takeover: no update of others later than {_LONGEST:.0f} ms",
            Reference(_NAME, VARIANT, OURS, LONGEST.name),
            None,
            factor=_LONGEST,
            at_least=False,
        ),
    )
    apart: ClassVar[str] = "the published run is older than it"

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        """See ``Case``."""
        context.progress.say(f"takeover: {VARIANT}")
        with (
            redis_server(context.placement.others) as (redis, redis_port),
            survivors(context.placement, redis_port, context.checkout) as (ports, pids),
        ):
            measuring = measure(redis_port, ports[0], (pids, redis.pids()), sessions=SESSIONS, messages=MESSAGES)
            found = asyncio.run(measuring)
        phases = found.takeover, found.windows
        nodes, store = sum(each.nodes for each in phases), sum(each.redis for each in phases)
        values = {
            TOTAL_CPU.name: nodes + store,
            NODE_CPU.name: nodes,
            STORE_CPU.name: store,
            TAKEN_OVER.name: found.takeover.seconds,
            LONGEST.name: max(each.longest_delay for each in phases) * _MILLISECONDS,
            QUIET.name: found.quiet.longest_delay * _MILLISECONDS,
        }
        return [Row(_NAME, VARIANT, contestant, values)]
