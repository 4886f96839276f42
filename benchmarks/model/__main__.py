"""The command: ``python -m benchmarks.model``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from benchmarks.model import document as documents
from benchmarks.model import report
from benchmarks.model.calibrate import calibrate as take_costs
from benchmarks.model.costs import EXAMPLE, BadFile, Calibration
from benchmarks.model.plan import Impossible, Rules, Workload
from benchmarks.model.plan import plan as find
from benchmarks.model.predict import compare

FILE = click.Path(path_type=Path, dir_okay=False)

_COSTS = click.option(
    "--costs", "costs_file", type=FILE, default=EXAMPLE, help="From calibrate.  [default: the committed example]"
)


def _read(file: Path) -> Calibration:
    try:
        return Calibration.read(file)
    except BadFile as problem:
        raise click.ClickException(str(problem)) from problem


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
def main() -> None:
    """Predict what a cluster of any size needs from what was measured on one machine."""


@main.command()
@click.option(
    "--only",
    metavar="PARTS",
    help="deliveries, own_topics, storms, replicas, forward, selections; with commas between.",
)
@click.option("--runs", type=click.IntRange(min=1), default=1, help="How often each part is measured.")
def measure(only: str | None, runs: int) -> None:
    """Measure what the model needs besides the benchmark's cases; JSON to standard output, about two minutes a run.

    Exits with 1 if anything was lost or wrong.
    """
    from benchmarks.machine import commit, machine  # noqa: PLC0415 - planning needs no machine
    from benchmarks.model.sweep import FAILURES, Sweep  # noqa: PLC0415 - nor what measures
    from benchmarks.placement import Placement  # noqa: PLC0415
    from benchmarks.processes import scratch_folder  # noqa: PLC0415

    rows = []
    try:
        with scratch_folder("model") as folder:
            parts = Sweep(Placement.of_this_machine(), folder, _Progress()).parts()
            chosen = [each.strip() for each in only.split(",")] if only else list(parts)
            if unknown := [each for each in chosen if each not in parts]:
                raise click.BadParameter(f"unknown: {', '.join(unknown)}; there are {', '.join(parts)}")
            for _ in range(runs):
                for part in chosen:
                    rows += [asdict(row) for row in parts[part]()]
    except (*FAILURES, RuntimeError, OSError) as reason:
        raise click.ClickException(str(reason)) from reason
    content = {
        "format": 1,
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
        "rows": rows,
    }
    click.echo(json.dumps(content, indent=1, ensure_ascii=False))
    failed = [row for row in rows if row["failures"]]
    for row in failed:
        click.echo(f"FAILED {row['variant']}: {row['failures'][0]}", err=True)
    sys.exit(1 if failed else 0)


class _Progress:
    def say(self, text: str) -> None:
        """Tell people, not the file."""
        click.echo(text, err=True)


@main.command()
@click.argument("results", type=FILE, nargs=-1, required=True)
def calibrate(results: Sequence[Path]) -> None:
    """Take costs from RESULTS of the benchmark and of ``measure``; JSON to standard output."""
    try:
        click.echo(take_costs(results).as_json(), nl=False)
    except BadFile as problem:
        raise click.ClickException(str(problem)) from problem


@main.command()
@_COSTS
def check(costs_file: Path) -> None:
    """Set what the model says beside what was measured.

    Exits with 1 if any two are further apart than allowed.
    """
    calibration = _read(costs_file)
    comparisons = compare(calibration)
    click.echo(report.plain(report.comparison_rows(comparisons)))
    click.echo(f"\nmeasured {calibration.date}, commit {calibration.commit}")
    apart = [each for each in comparisons if not each.holds]
    if apart:
        raise click.ClickException(f"{len(apart)} of {len(comparisons)} are too far apart; see the exclamation marks")


@main.command()
@_COSTS
@click.option("--sessions", type=click.IntRange(min=1), required=True, help="Connected sessions.")
@click.option("--updates", type=click.FloatRange(min=0), default=0.0, help="Published per second, in all.")
@click.option("--audience", type=click.FloatRange(min=0), help="Sessions each update goes to.  [default: all]")
@click.option("--topics", type=click.IntRange(min=0), default=10_000, help="Topics with a value.")
@click.option("--roots", type=click.IntRange(min=1), default=64, help="First segments the updates are spread over.")
@click.option("--interest", type=click.FloatRange(0, 1), default=1.0, help="Share of the updates that a node follows.")
@click.option("--churn", type=click.FloatRange(min=0), help="Sessions that come per second.  [default: each hourly]")
@click.option("--selections", type=click.IntRange(min=0), default=3, help="Of each session.")
@click.option("--value-bytes", type=click.IntRange(min=1), default=100, help="Of each value.")
@click.option("--nodes", type=click.IntRange(min=1), help="How many there are.  [default: the least that is enough]")
@click.option("--nodes-lost", type=click.IntRange(min=0), default=1, help="That may fail at the same moment.")
@click.option("--recover-within", type=click.FloatRange(min=0.3), default=10.0, help="Seconds until all are served.")
@click.option("--detection", type=click.FloatRange(min=0), default=0.0, help="Seconds until clients notice.")
@click.option("--node-memory", type=click.FloatRange(min=0.1), default=2.0, help="GiB for one node.")
@click.option("--balancers", type=click.IntRange(min=1), default=2, help="HAProxy addresses.")
@click.option("--busy", type=click.FloatRange(0.05, 0.95), default=0.6, help="Share of a node's core to use.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def plan(*, costs_file: Path, nodes: int | None, as_json: bool, **given: Any) -> None:
    """Tell what a workload needs.

    Exits with 1 if no number of nodes is enough, or the given one is not.
    """
    calibration = _read(costs_file)
    sessions = given["sessions"]
    workload = Workload(
        sessions=sessions,
        updates=given["updates"],
        audience=sessions if given["audience"] is None else given["audience"],
        topics=given["topics"],
        roots=given["roots"],
        interest=given["interest"],
        churn=sessions / _HOUR if given["churn"] is None else given["churn"],
        selections=given["selections"],
        value_bytes=given["value_bytes"],
    )
    rules = Rules(
        busy=given["busy"],
        nodes_lost=given["nodes_lost"],
        recover_within=given["recover_within"],
        detection=given["detection"],
        node_memory=given["node_memory"],
        balancers=given["balancers"],
    )
    try:
        found = find(calibration.costs, workload, rules, nodes=nodes)
    except Impossible as reason:
        raise click.ClickException(str(reason)) from reason
    if as_json:
        click.echo(json.dumps(asdict(found), indent=1))
        return
    click.echo(report.plain(report.plan_rows(found, workload, rules), right=False))
    click.echo(f"\n{report.assumptions(workload, rules)}")
    click.echo(f"costs: measured {calibration.date}, commit {calibration.commit}")


_HOUR = 3_600.0


@main.command()
@_COSTS
@click.argument("page", type=FILE, default=documents.PAGE)
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit with 1 if it is not up to date.")
def document(costs_file: Path, page: Path, *, only_check: bool) -> None:
    """Write the figures of PAGE, and draw its pictures."""
    calibration = _read(costs_file)
    try:
        stale = documents.update(page, calibration, write=not only_check)
    except (OSError, BadFile) as problem:
        raise click.ClickException(str(problem)) from problem
    if only_check and stale:
        raise click.ClickException(f"{page} is not what {costs_file} says; run python -m benchmarks.model document")


if __name__ == "__main__":
    main()
