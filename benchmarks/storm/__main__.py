"""One storm from the command line, for use while working: ``python -m benchmarks.storm failover --sessions 2000``."""

from __future__ import annotations

import json
import signal
from statistics import median
from typing import Any, Final, NoReturn

import click

from benchmarks.placement import Placement
from benchmarks.storm.cluster import running
from benchmarks.storm.crowd import allow_descriptors, crowd_on
from benchmarks.storm.scenarios import LINKED, SCENARIOS, Storm
from benchmarks.systems.base import Role

_MICRO: Final = 1e6
_DESCRIPTORS_PER_SESSION: Final = 3
"""One here, two in HAProxy, which inherits the bound."""
_DESCRIPTORS: Final = 1_000
"""For everything else."""


@click.command()
@click.argument("scenario", type=click.Choice(sorted(SCENARIOS)))
@click.option("--sessions", default=2_000, show_default=True, help="Sessions on the node.")
@click.option("--runs", default=3, show_default=True, help="How often; each with processes of its own.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the nodes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a run.")
def main(scenario: str, sessions: int, runs: int, settings: tuple[str, ...], as_json: bool) -> None:
    """Run one storm and print what it cost.

    Raises:
        SystemExit: with 1 if a check failed.
    """
    signal.signal(signal.SIGTERM, _stop)
    allow_descriptors(sessions * _DESCRIPTORS_PER_SESSION + _DESCRIPTORS)
    given = dict(each.split("=", 1) for each in settings)
    placement = Placement.of_this_machine()
    storms = []
    for _ in range(runs):
        with (
            running(placement, settings=given, links=scenario in LINKED) as cluster,
            crowd_on(placement.others) as crowd,
        ):
            storm = SCENARIOS[scenario](cluster, crowd, sessions)
        storms.append(storm)
        print(json.dumps(figures(storm)) if as_json else _line(storm), flush=True)
    if not as_json and runs > 1:
        print(f"median gateway CPU/session {median(each.per_session(Role.SERVER) for each in storms) * _MICRO:.0f} µs")
    if any(each.failure for each in storms):
        raise SystemExit(1)


def _stop(number: int, _frame: object) -> NoReturn:
    """Leave by an exception, so that everything that was started is stopped."""
    raise SystemExit(128 + number)


def figures(storm: Storm) -> dict[str, Any]:
    """Put a storm into numbers: times in seconds, CPU in microseconds for each session."""
    return {
        "sessions": storm.sessions,
        "recovered": storm.recovered,
        "seconds": round(storm.seconds, 4),
        "sessions_per_second": round(storm.sessions / storm.seconds, 1) if storm.seconds > 0 else 0.0,
        **{f"{role.value}_us": round(storm.per_session(role) * _MICRO, 1) for role in storm.cpu},
        "client_us": round(storm.own_cpu / storm.sessions * _MICRO, 1),
        "median_wait": round(median(storm.waits), 4) if storm.waits else None,
        "failure": storm.failure,
    }


def _line(storm: Storm) -> str:
    found = figures(storm)
    roles = ", ".join(f"{role.value} {found[f'{role.value}_us']:.0f} µs" for role in storm.cpu)
    text = (
        f"{storm.recovered}/{storm.sessions} recovered in {storm.seconds:.3f} s "
        f"({found['sessions_per_second']:.0f}/s); "
        f"CPU per session: {roles}, client {found['client_us']:.0f} µs"
    )
    return f"{text}; FAILED: {storm.failure}" if storm.failure else text


if __name__ == "__main__":
    main()
