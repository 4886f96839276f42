"""What an idle session costs: memory of the node and of the grid, and CPU for its pings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import ClassVar, Final

from benchmarks import measure
from benchmarks.cases.base import OURS, Better, Case, Context, Figure, Reference, Row, Target
from benchmarks.measure import process_cpu
from benchmarks.storm.cluster import running
from benchmarks.storm.crowd import all_topics, allow_descriptors, crowd_on
from benchmarks.storm.echo import Echoes
from benchmarks.storm.loop import StormFailed
from benchmarks.storm.scenarios import HOME, PREPARING_AT_ONCE, WARM_UP, publish_everything, warm_up
from benchmarks.systems.bare_aiohttp import BareAiohttp
from benchmarks.systems.base import Role, StartOptions

_NAME: Final = "memory"
SESSIONS: Final = 10_000
QUICK_SESSIONS: Final = 2_000
VARIANT: Final = f"{SESSIONS:,} idle sessions"
QUICK_VARIANT: Final = f"{QUICK_SESSIONS:,} idle sessions"
BARE: Final = "bare aiohttp"
PING_INTERVAL: Final = 20.0
"""Seconds; the default of a node. The window is just as long, so that each session is pinged once in it."""
QUIET_SECONDS: Final = 1.5
"""Until acknowledgements are read and timers of the arrival are over."""
_DESCRIPTORS: Final = 1_000
_KIB: Final = 1024
_PERCENT: Final = 100.0

RESIDENT: Final = Figure("resident", "RSS / session", "KiB", Better.LOWER, 2)
GRID: Final = Figure("grid", "grid / session", "bytes", Better.LOWER, 0)
IDLE_TOTAL: Final = Figure("idle_total", "idle CPU / 10,000 sessions, all processes", "% of a core", Better.LOWER, 2)
"""Node and Redis together."""
IDLE: Final = Figure("idle", "… the server's", "% of a core", Better.LOWER, 2)
IDLE_STORE: Final = Figure("idle_redis", "… Redis's", "% of a core", Better.LOWER, 2)
PINGED: Final = Figure("pinged", "pinged meanwhile", "%", Better.NEITHER, 0)


class MemoryCase(Case):
    """See ``about``."""

    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "Idle sessions"
    about: ClassVar[str] = (
        "Growth of the resident set and of Redis's used memory from an idle, warm node with the values of all topics "
        "present, until sessions with three selections each are idle; then the CPU of one ping interval (20 s). The "
        "values' copies in the node count as the sessions'. aiohttp's bare connections: after one echo each."
    )
    figures: ClassVar[Sequence[Figure]] = (RESIDENT, GRID, IDLE_TOTAL, IDLE, IDLE_STORE, PINGED)
    contestants: ClassVar[Sequence[str]] = (OURS, BARE)
    rounds: ClassVar[int] = 1
    targets: ClassVar[Sequence[Target]] = (
        Target(
            "memory per idle session: at most 16 KiB",
            Reference(_NAME, VARIANT, OURS, RESIDENT.name),
            None,
            factor=16.0,
            at_least=False,
        ),
        Target(
            "idle CPU per 10,000 sessions, Redis and pings included: at most 5 % of a core",
            Reference(_NAME, VARIANT, OURS, IDLE_TOTAL.name),
            None,
            factor=5.0,
            at_least=False,
        ),
    )

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        """See ``Case``."""
        sessions = QUICK_SESSIONS if context.quick else SESSIONS
        variant = QUICK_VARIANT if context.quick else VARIANT
        allow_descriptors(sessions + _DESCRIPTORS)
        context.progress.say(f"memory: opening {sessions:,} connections to {contestant}")
        if contestant == BARE:
            return [_bare(context, sessions, variant)]
        return [_gateway(context, sessions, variant)]


def _gateway(context: Context, sessions: int, variant: str) -> Row:
    figures: dict[str, float] = {}
    failures = []
    with (
        running(context.placement, nodes=[HOME], balancer=False, checkout=context.checkout) as cluster,
        crowd_on(context.placement.others) as crowd,
    ):
        try:
            publish_everything(cluster, crowd, all_topics(sessions))
            warm_up(cluster, crowd, sessions, [HOME])
            crowd.idle(QUIET_SECONDS)
            resident, grid = cluster.resident(HOME), cluster.used_memory()
            crowd.add(sessions)
            crowd.arrive(cluster.direct(HOME), expected="created", at_once=PREPARING_AT_ONCE)
            crowd.settle()
            crowd.idle(QUIET_SECONDS)
            figures[RESIDENT.name] = (cluster.resident(HOME) - resident) / sessions / _KIB
            figures[GRID.name] = (cluster.used_memory() - grid) / sessions
            context.progress.say("memory: idle for one ping interval")
            before, pings, began = cluster.cpu([HOME]), crowd.pings, time.monotonic()
            crowd.idle(PING_INTERVAL)
            after, seconds = cluster.cpu([HOME]), time.monotonic() - began
            scale = SESSIONS / sessions / seconds * _PERCENT
            figures[IDLE.name] = (after[Role.SERVER] - before[Role.SERVER]) * scale
            figures[IDLE_STORE.name] = (after[Role.STORE] - before[Role.STORE]) * scale
            figures[IDLE_TOTAL.name] = figures[IDLE.name] + figures[IDLE_STORE.name]
            figures[PINGED.name] = (crowd.pings - pings) / sessions * _PERCENT
        except StormFailed as failed:
            failures.append(str(failed))
    return Row(_NAME, variant, OURS, figures, failures)


def _bare(context: Context, sessions: int, variant: str) -> Row:
    figures: dict[str, float] = {}
    failures = []
    with (
        BareAiohttp().running(context.placement, StartOptions(sessions)) as server,
        crowd_on(context.placement.others),
        closing(Echoes()) as warm,
        closing(Echoes()) as echoes,
    ):
        address = server.endpoint.host, server.endpoint.port
        pid = server.pids()[Role.SERVER][0]
        try:
            warm.arrive(address, WARM_UP)
            warm.loop.cut_all()
            echoes.loop.idle(QUIET_SECONDS)
            resident = measure.resident_bytes([pid])
            echoes.arrive(address, sessions, at_once=PREPARING_AT_ONCE)
            echoes.loop.idle(QUIET_SECONDS)
            figures[RESIDENT.name] = (measure.resident_bytes([pid]) - resident) / sessions / _KIB
            before, began = process_cpu(pid), time.monotonic()
            echoes.loop.idle(QUIET_SECONDS)
            idle = (process_cpu(pid) - before) / (time.monotonic() - began)
            figures[IDLE.name] = figures[IDLE_TOTAL.name] = idle * SESSIONS / sessions * _PERCENT
        except StormFailed as failed:
            failures.append(str(failed))
    return Row(_NAME, variant, BARE, figures, failures)
