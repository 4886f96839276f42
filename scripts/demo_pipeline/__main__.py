"""``python -m scripts.demo_pipeline``: what ``make demo-pipeline`` runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import pyarrow.dataset as ds

from gateway.core.wire.errors import GatewayError
from gateway.local.narration import Narrator
from gateway.local.ports import DEFAULT_BASE, MAXIMUM_NODES, PortPlan, PortsTaken
from gateway.local.processes import ProcessFailed, ProgramMissing
from gateway.local.recipes import StackOptions
from gateway.local.stack import Stack
from pipeline.gold.words import RUNGS
from scripts.demo_pipeline.incident import play
from scripts.demo_pipeline.truth import Comparison, Happened, Row, compare

FOLDER: Final = Path(".local") / "demo-pipeline"
"""Ignored by git; made anew by each run."""

SETTINGS: Final = {"journal": "true", "lease": 3, "lease_renew": 1}
"""Of the nodes. A dead one is noticed within three seconds: whoever looks on need not wait longer."""

SHOWN: Final = 10
"""Differences written out."""


LAST_LINES: Final = 10
"""Of the log of a step that failed."""


class StepFailed(Exception):
    """A command of the pipeline ended with another exit code than 0; it has told why."""


@click.command()
@click.option("--clients", type=click.IntRange(min=3), default=300, show_default=True, help="How many are connected.")
@click.option("--nodes", type=click.IntRange(3, MAXIMUM_NODES), default=3, show_default=True, help="Gateway nodes.")
@click.option("--port-base", type=int, default=DEFAULT_BASE, show_default=True, help="First of the ports.")
def program(clients: int, nodes: int, port_base: int) -> None:
    """Kill a node and drain another one under clients, then have the pipeline tell what happened to whom."""
    try:
        sys.exit(asyncio.run(_run(clients, nodes, port_base)))
    except (PortsTaken, ProcessFailed, ProgramMissing, GatewayError, StepFailed, OSError) as error:
        click.echo(f"demo-pipeline: error: {error}", err=True)
        sys.exit(1)


async def _run(clients: int, nodes: int, port_base: int) -> int:
    narrator = Narrator()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    stack = Stack(
        StackOptions(ports=PortPlan.from_base(port_base, nodes), folder=FOLDER / "stack", node_settings=SETTINGS)
    )
    with narrator.busy("starting Redis, nodes and HAProxy …"):
        await stack.start()
    try:
        narrator.say(f"Started Redis, {nodes} nodes and HAProxy; logs in {stack.logs}")
        happened = await play(stack, clients, narrator.say)
        lake, page = FOLDER / "lake", FOLDER / "report.html"
        for number, command in enumerate(steps(stack.grid_url, lake, page), 1):
            narrator.say(f"{number}. pipeline {' '.join(command)}")
            began = time.monotonic()
            with narrator.busy(f"pipeline {command[0]} …"):
                await _pipeline(command, FOLDER / "pipeline.log")
            narrator.say(f"   done in {time.monotonic() - began:.0f} s")
    finally:
        await stack.stop()
    comparisons = compare_all(lake, happened)
    for each in comparisons:
        _tell(narrator, each)
    narrator.say(f"\nThe report: {page.resolve()}")
    return 1 if any(each.differences for each in comparisons) else 0


def steps(grid: str, lake: Path, page: Path) -> list[Sequence[str]]:
    """List the commands of the pipeline, from the journal to the page."""
    return [
        ("ingest", "--grid", grid, "--lake", str(lake)),
        ("sessions", "--lake", str(lake)),
        ("gold", "--lake", str(lake)),
        ("report", "--lake", str(lake), "--output", str(page)),
    ]


def compare_all(lake: Path, happened: Sequence[Happened]) -> list[Comparison]:
    """Compare all that happened with the gold tables of a lake."""
    incidents, touched = _rows(lake / "gold" / "incidents"), _rows(lake / "gold" / "incident_sessions")
    return [compare(each, incidents, touched) for each in happened]


def _rows(folder: Path) -> list[Row]:
    return list(ds.dataset(folder, format="parquet", partitioning="hive").to_table().to_pylist())


async def _pipeline(command: Sequence[str], log: Path) -> None:
    """Run a command of the pipeline; Spark's own words go to the log."""
    with log.open("ab") as stream:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "pipeline", *command),
            stdout=stream,
            stderr=stream,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
        code = await process.wait()
    if code:
        raise StepFailed(f"`pipeline {command[0]}` ended with exit code {code}; {log} ends with\n{_end_of(log)}")


def _end_of(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:])


def _tell(narrator: Narrator, comparison: Comparison) -> None:
    happened, told = comparison.happened, comparison.told
    narrator.say(f"\nThe {happened.kind} of {happened.node}, as the pipeline tells it:")
    if told is not None:
        rungs = ", ".join(f"{told[name]} {name.replace('_', ' ')}" for name in RUNGS if told[name])
        narrator.say(
            f"   began {told['begins']:%H:%M:%S} UTC; {told['sessions']} sessions, {told['comebacks']} back "
            f"({rungs}; {told['replayed']} replayed, {told['not_replayed']} not), {told['lost']} packets lost; "
            f"away p50 {told['away_p50_ms']} ms, p95 {told['away_p95_ms']} ms, p99 {told['away_p99_ms']} ms"
        )
    if not comparison.differences:
        narrator.say(
            f"   ✓ all {len(happened.seen)} clients saw the same: session, rung, node, whether all was replayed, and "
            f"the time away within {comparison.most_apart_ms:.0f} ms (a round trip took {happened.clock_ms:.0f} ms)"
        )
    for each in comparison.differences[:SHOWN]:
        narrator.say(f"   ✗ {each}")
    if len(comparison.differences) > SHOWN:
        narrator.say(f"   … and {len(comparison.differences) - SHOWN} more")


if __name__ == "__main__":
    program(prog_name="python -m scripts.demo_pipeline")
