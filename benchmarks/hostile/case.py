"""The case of ``make bench ONLY=hostile``: every attack is a contestant, and has a fresh stack."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import ClassVar, Final

from benchmarks.cases.base import OURS, Case, Context, Figure, Row
from benchmarks.hostile.catalogue import ATTACKS, GROUP_OF
from benchmarks.hostile.disturbances import disturbances
from benchmarks.hostile.measurement import Lengths, measure
from benchmarks.hostile.stack import SETTINGS
from benchmarks.hostile.verdict import Measurement, judge, remarks
from benchmarks.processes import scratch_folder

NAME: Final = "hostile"

QUIET_SECONDS: Final = 2.5
"""For 400 updates to witnesses and two newcomers: enough to compare with, and every row has such a phase."""
ATTACK_SECONDS: Final = 6.0
"""As long as a lease: a node that does not come to renew it loses it within the attack and its aftermath."""

QUICK: Final = Lengths(quiet=2.0, attack=6.0)
"""Of a quick run. The attack is as long as in a full one, for the lease has its own length."""

_MILLI: Final = 1e3
_PERCENT: Final = 100.0
_MEGABYTE: Final = 1e6
_MEBIBYTE: Final = 1024.0**2

HELD: Final = Figure("held", "held", "")
"""1 if the node held, else 0."""

ATTACKER_CPU: Final = Figure("attacker_cpu", "attacker CPU", "%", digits=0)
ATTACKER_BYTES: Final = Figure("attacker_bytes", "sends", "MB/s", digits=2)
ATTACKER_CONNECTIONS: Final = Figure("attacker_connections", "connections", "", digits=0)
DONE: Final = Figure("done", "done", "/s", digits=0)
QUIET_P50: Final = Figure("quiet_p50", "p50, quiet", "ms")
QUIET_P99: Final = Figure("quiet_p99", "p99, quiet", "ms")
P50: Final = Figure("p50", "p50", "ms")
P99: Final = Figure("p99", "p99", "ms")
BOUND: Final = Figure("bound", "bound", "ms", digits=0)
LOST: Final = Figure("lost", "lost", "", digits=0)
QUIET_LOGIN: Final = Figure("quiet_login", "login, quiet", "ms", digits=0)
LOGIN: Final = Figure("login", "login", "ms", digits=0)
RESUME: Final = Figure("resume", "resume", "ms", digits=0)
FAILED_LOGINS: Final = Figure("failed_logins", "logins and resumes refused", "", digits=0)
QUIET_CPU: Final = Figure("quiet_cpu", "node CPU, quiet", "%", digits=0)
CPU: Final = Figure("cpu", "node CPU", "%", digits=0)
RESIDENT_BEFORE: Final = Figure("resident_before", "memory before", "MiB", digits=0)
RESIDENT: Final = Figure("resident", "memory", "MiB", digits=0)
RESIDENT_AFTER: Final = Figure("resident_after", "memory after", "MiB", digits=0)
LEASE_LEFT: Final = Figure("lease_left", "lease left", "s")
SLOWEST_CHECK: Final = Figure("slowest_check", "slowest /readyz", "ms", digits=0)
FAILED_CHECKS: Final = Figure("failed_checks", "checks of HAProxy failed", "", digits=0)
FALLS: Final = Figure("falls", "DOWN", "", digits=0)

COLUMNS: Final = (
    HELD, ATTACKER_CPU, ATTACKER_BYTES, DONE, QUIET_P99, P99, LOST, LOGIN, CPU, RESIDENT, LEASE_LEFT, FALLS,
)  # fmt: skip
"""What a terminal shows while one tries things."""

FIGURES: Final = (
    *COLUMNS, ATTACKER_CONNECTIONS, QUIET_P50, P50, BOUND, QUIET_LOGIN, RESUME, FAILED_LOGINS, QUIET_CPU,
    RESIDENT_BEFORE, RESIDENT_AFTER, SLOWEST_CHECK, FAILED_CHECKS,
)  # fmt: skip
"""All that a row has; the published tables show more of them than a terminal has room for."""


class Hostile(Case):
    """See ``about``."""

    name: ClassVar[str] = NAME
    title: ClassVar[str] = "Hostile clients"
    about: ClassVar[str] = (
        "One client, account or stranger does its worst to a node with default settings, while witnesses on the same "
        "node publish, select, log in and resume. A row holds if the witnesses' p99 stays below 250 ms or ten times "
        "its quiet value, nothing of theirs is lost or refused, newcomers wait no longer than a second, and the node "
        "keeps its lease and answers its health checks."
    )
    figures: ClassVar[Sequence[Figure]] = COLUMNS
    contestants: ClassVar[Sequence[str]] = tuple(ATTACKS)
    systems: ClassVar[Mapping[str, Mapping[str, str]]] = {
        OURS: {
            name.replace("_", "-"): f"{value}, as the attacker is on the same machine"
            for name, value in SETTINGS.items()
        }
    }
    rounds: ClassVar[int] = 1
    apart: ClassVar[str] = "it takes 40 minutes"

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        """See ``Case``."""
        lengths = QUICK if context.quick else Lengths(QUIET_SECONDS, ATTACK_SECONDS)
        with scratch_folder(NAME) as folder:
            measured = asyncio.run(measure(ATTACKS[contestant], folder, context.placement, lengths, context.progress))
        return [row(contestant, measured)]


def row(name: str, measured: Measurement) -> Row:
    """Write a measurement as a row."""
    quiet, attacked, effort, seconds = measured.quiet, measured.attacked, measured.effort, measured.attack_seconds
    values = {
        ATTACKER_CPU: measured.attacker_cpu * _PERCENT,
        ATTACKER_BYTES: effort.sent / seconds / _MEGABYTE,
        ATTACKER_CONNECTIONS: effort.connections,
        DONE: effort.done / seconds,
        QUIET_P50: quiet.p50 * _MILLI,
        QUIET_P99: quiet.p99 * _MILLI,
        P50: attacked.p50 * _MILLI,
        P99: measured.p99 * _MILLI,
        BOUND: measured.bound * _MILLI,
        LOST: attacked.lost,
        QUIET_LOGIN: _middle(quiet.logins) * _MILLI,
        LOGIN: _middle(attacked.logins) * _MILLI,
        RESUME: _middle(attacked.resumes) * _MILLI,
        FAILED_LOGINS: attacked.failed_logins,
        QUIET_CPU: quiet.cpu * _PERCENT,
        CPU: attacked.cpu * _PERCENT,
        RESIDENT_BEFORE: measured.resident_before / _MEBIBYTE,
        RESIDENT: attacked.resident / _MEBIBYTE,
        RESIDENT_AFTER: measured.resident_after / _MEBIBYTE,
        LEASE_LEFT: attacked.lease_left,
        SLOWEST_CHECK: attacked.slowest_check * _MILLI,
        FAILED_CHECKS: attacked.failed_checks,
        FALLS: attacked.falls,
    }
    why = judge(measured)
    attack = ATTACKS[name]
    return Row(
        case=NAME,
        variant=GROUP_OF[name],
        contestant=name,
        values={
            HELD.name: float(not why),
            **{figure.name: float(value) for figure, value in values.items() if not math.isnan(value)},
        },
        failures=why,
        flags=[*remarks(measured), *disturbances(measured)],
        details={
            "about": attack.about,
            "needs": attack.needs.words(),
            "counts": attack.counts,
            "effort": dataclasses.asdict(effort),
            "conditions": _conditions(measured),
        },
    )


def _conditions(measured: Measurement) -> dict[str, float]:
    """Tell what decides whether the measurement says anything (``disturbances``): shares, and seconds."""
    told = {
        "attacker_waited": measured.attacker_waited,
        "kept_busy": measured.kept_busy,
        "node_waited_quiet": measured.node_waited,
        "node_waited": measured.node_waited_attacked,
    }
    for name, phase in (("_quiet", measured.quiet), ("", measured.attacked)):
        told |= {f"witness_late{name}": phase.late, f"unobserved{name}": phase.unobserved}
        told |= {f"refused_by_redis{name}": phase.refused_by_redis, f"refused{name}": phase.refused}
        told |= {f"returns{name}": len(phase.returns), f"failed_returns{name}": phase.failed_returns}
        if phase.outage is not None and phase.outage.until_back is not None:
            told[f"until_redis_was_back{name}"] = phase.outage.until_back
    return told


def _middle(values: Sequence[float]) -> float:
    return median(values) if values else math.nan
