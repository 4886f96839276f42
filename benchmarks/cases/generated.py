"""What the cases that use the generator share: one drive, and the row that it gives."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Final

from benchmarks.cases.base import Better, Context, Figure, Row
from benchmarks.generator.driver import Load, Report, build, drive
from benchmarks.systems.base import Role, Running

DELIVERIES: Final = Figure("deliveries_per_second", "deliveries", "/s", Better.HIGHER, digits=0)
CPU: Final = Figure("cpu_per_delivery", "server CPU per delivery", "µs", Better.LOWER, digits=2)
REDIS_CPU: Final = Figure("redis_cpu_per_delivery", "Redis CPU per delivery", "µs", digits=2)
P50: Final = Figure("p50", "p50", "ms", Better.LOWER, digits=2)
P99: Final = Figure("p99", "p99", "ms", Better.LOWER, digits=2)
P999: Final = Figure("p999", "p99.9", "ms", Better.LOWER, digits=2)
JOINED: Final = Figure("deliveries_per_read", "deliveries per read", "", digits=1)
SERVER_BUSY: Final = Figure("server_busy", "server busy", "%", digits=0)
GENERATOR_BUSY: Final = Figure("generator_busy", "generator busy", "%", digits=0)

MICROSECONDS_PER_MILLISECOND: Final = 1_000

ON_SCHEDULE: Final = 0.99
"""Share of the asked rate below which a row is flagged; less than that is the rounding of a short window."""

GENERATOR_FULL: Final = 95.0
SERVER_IDLE: Final = 90.0
"""Percent of a core. A generator this full beside a server this idle was what limited the figure."""

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
        CPU: report.cpu_per_delivery(Role.SERVER),
        REDIS_CPU: report.cpu_per_delivery(Role.STORE),
        JOINED: report.delivered / report.reads if report.reads else None,
        SERVER_BUSY: report.utilisation(Role.SERVER),
        GENERATOR_BUSY: report.utilisation("generator"),
    }
    if report.delivery.count:
        found |= {
            P50: report.delivery.p50 / MICROSECONDS_PER_MILLISECOND,
            P99: report.delivery.p99 / MICROSECONDS_PER_MILLISECOND,
            P999: report.delivery.p999 / MICROSECONDS_PER_MILLISECOND,
        }
    return {figure.name: value for figure, value in found.items() if value is not None}


def flags_of(load: Load, report: Report) -> Sequence[str]:
    """Tell why the figures of a report can not simply be compared."""
    flags = []
    if load.rate is not None and report.updates_per_second < ON_SCHEDULE * load.rate:
        flags.append(f"overloaded: {report.updates_per_second:,.0f} of {load.rate:,.0f} updates/s")
    if report.utilisation("generator") > GENERATOR_FULL and report.utilisation(Role.SERVER) < SERVER_IDLE:
        flags.append("the generator was the limit")
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
