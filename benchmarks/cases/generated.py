"""What the cases that use the generator share: one drive, and the row that it gives."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Final

from benchmarks.cases.base import OURS, Better, Context, Figure, Row
from benchmarks.comparison import GENERATOR_LIMIT, OVERLOADED
from benchmarks.generator.driver import GENERATOR, Load, Report, build, drive
from benchmarks.systems.base import Role, Running

DELIVERIES: Final = Figure("deliveries_per_second", "deliveries", "/s", Better.HIGHER, digits=0)
TOTAL_CPU: Final = Figure("total_cpu_per_delivery", "CPU per delivery, all processes", "µs", Better.LOWER, digits=2)
"""What ratios are made of: a system that leaves work to its Redis has not saved it."""
CPU: Final = Figure("cpu_per_delivery", "… the server's", "µs", Better.LOWER, digits=2)
REDIS_CPU: Final = Figure("redis_cpu_per_delivery", "… Redis's", "µs", digits=2)
P50: Final = Figure("p50", "p50", "ms", Better.LOWER, digits=2)
P99: Final = Figure("p99", "p99", "ms", Better.LOWER, digits=2)
P999: Final = Figure("p999", "p99.9", "ms", Better.LOWER, digits=2)
JOINED: Final = Figure("deliveries_per_read", "deliveries per read", "", digits=1)
SERVER_BUSY: Final = Figure("server_busy", "server busy", "%", digits=0)
GENERATOR_BUSY: Final = Figure("generator_busy", "generator busy", "%", digits=0)

CONTESTANTS: Final = (OURS, "nchan", "nats", "mosquitto", "socketio", "python_socketio", "c_floor")
"""Whom the generator can drive, for cases that none of them is left out of."""

MICROSECONDS_PER_MILLISECOND: Final = 1_000

KEPT_UP: Final = 0.99
"""Share of the deliveries that were asked for, below which a system has not kept up."""

EDGE_UPDATES: Final = 2
"""Updates that a window may cut off at its ends without the system being late: one at each. They matter for short
windows of slow schedules alone (50 updates/s for a second)."""

GENERATOR_FULL: Final = 85.0
"""Percent of the generator's core, used by it and what shares that core (Redis). From here on waiting for that core is
a part of what is measured, whatever the server could have done."""

_topics = count()


def measure(running: Running, load: Load, context: Context) -> Report:
    """Drive a running system once, on topics that were never used before.

    Raises:
        SystemFailed: a process of the system ended.
        GeneratorFailed: there is no report.
    """
    program = build(context.folder / "generator")
    running.alive()
    report = drive(
        program,
        running.endpoint,
        load,
        topic=f"benchmark{next(_topics)}x",
        core=context.placement.others,
        progress=context.progress,
        pids=running.pids(),
    )
    running.alive()
    return report


def values_of(report: Report) -> dict[str, float]:
    """Take the figures of this module from a report; those that do not apply are left out."""
    found: dict[Figure, float | None] = {
        DELIVERIES: report.deliveries_per_second,
        TOTAL_CPU: report.system_cpu_per_delivery,
        CPU: report.cpu_per_delivery(Role.SERVER),
        REDIS_CPU: report.cpu_per_delivery(Role.STORE),
        JOINED: report.delivered / report.reads if report.reads else None,
        SERVER_BUSY: report.utilisation(Role.SERVER),
        GENERATOR_BUSY: report.utilisation(GENERATOR),
    }
    if report.delivery.count:
        found |= {
            P50: report.delivery.p50 / MICROSECONDS_PER_MILLISECOND,
            P99: report.delivery.p99 / MICROSECONDS_PER_MILLISECOND,
            P999: report.delivery.p999 / MICROSECONDS_PER_MILLISECOND,
        }
    return {figure.name: value for figure, value in found.items() if value is not None}


def flags_of(load: Load, report: Report) -> Sequence[str]:
    """Tell why the figures of a report can not simply be compared.

    Whether a system kept up is judged by what subscribers received, not by what was published: a window that allows a
    second of updates under way lets a publisher keep its schedule for all of a short measurement, while deliveries
    fall behind.
    """
    flags = []
    if load.rate is not None:
        receivers = load.subscribers / load.topics
        asked = load.rate * receivers * report.seconds
        missing = asked - report.delivered
        if missing > max((1 - KEPT_UP) * asked, EDGE_UPDATES * receivers):
            flags.append(
                f"{OVERLOADED}: {report.deliveries_per_second:,.0f} of {load.rate * receivers:,.0f} deliveries/s"
            )
    own = report.utilisation(GENERATOR)
    shared = own + report.utilisation(Role.STORE) + report.utilisation(Role.BALANCER)
    if shared > GENERATOR_FULL:
        flags.append(f"{GENERATOR_LIMIT}: {own:.0f} % of its core, {shared:.0f} % with what shares it")
    return flags


def row(case: str, variant: str, contestant: str, load: Load, report: Report) -> Row:
    """Make the row of one drive."""
    return Row(
        case=case,
        variant=variant,
        contestant=contestant,
        values=values_of(report),
        failures=report.sentences(),
        flags=flags_of(load, report),
        details={"load": vars(load), "report": report.raw},
    )
