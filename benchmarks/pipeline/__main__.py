"""``python -m benchmarks.pipeline``: generate journals of growing size, run the pipeline over each, and compare."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.machine import commit, machine
from benchmarks.pipeline.measure import Taken, measure
from benchmarks.placement import Placement
from benchmarks.plots import Series, draw, slope
from benchmarks.processes import HOST, redis_server

SIZES: Final = (1_000_000, 10_000_000, 50_000_000)
"""Events; of growth, two orders of magnitude say enough."""

DRAWN: Final = ("silver", "gold", "duckdb")
"""Steps that are measured at every size."""

STEP_NAMES: Final = {
    "bronze": "bronze, from Redis",
    "generate": "bronze, generated",
    "silver": "silver",
    "gold": "gold",
    "duckdb": "gold by DuckDB",
}

LARGEST_JOURNAL: Final = 1_000_000
"""Events that are taken in from a Redis, which has to hold them all at once, and to be filled first: 270 bytes and 30
µs each. What is more begins as bronze."""

AGE: Final = 10 * 365 * 86_400
"""Seconds that a synthetic journal may be old: its events are of the same days whenever it is made."""

MEMORY: Final = "3g"
"""Heap of the driver, at every size: what does not fit has to be spilled, as it would be on a real machine."""

_SPARK: Final = ("--spark-conf", f"spark.driver.memory={MEMORY}")
_LOCAL: Final = {"SPARK_LOCAL_IP": HOST}

FIGURES: Final = Path(__file__).parents[2] / "docs" / "explanation" / "figures"


@click.command()
@click.option("--events", "sizes", multiple=True, type=int, default=SIZES, show_default=True, help="Sizes to measure.")
@click.option(
    "--scratch", type=click.Path(path_type=Path), required=True, help="Folder for lakes; 3 GB for the largest."
)
@click.option("--json", "file", type=click.Path(path_type=Path), required=True, help="Where results are kept, by size.")
@click.option("--figures/--no-figures", default=False, help="Draw the pictures of the documentation.")
def main(sizes: Sequence[int], scratch: Path, file: Path, *, figures: bool) -> None:
    """Measure the pipeline; sizes that were measured before stay in the file."""
    results = json.loads(file.read_text()) if file.exists() else {}
    for events in sizes:
        results[str(events)] = _measure(events, scratch / f"lake-{events}")
        results["machine"] = {**machine(), "commit": commit()}
        file.write_text(json.dumps(results, indent=1))
    measured = {int(size): result for size, result in results.items() if size.isdecimal()}
    click.echo(_table(measured))
    if figures:
        _draw(measured)


def _measure(events: int, lake: Path) -> dict[str, Any]:
    shutil.rmtree(lake, ignore_errors=True)
    pipeline = [sys.executable, "-m", "pipeline"]
    taken = {}
    if events <= LARGEST_JOURNAL:
        taken["bronze"] = _take_in(events, pipeline, lake)
        shutil.rmtree(lake)
    taken["generate"] = measure([*pipeline, "generate", "--events", f"{events}", "--lake", f"{lake}"])
    taken["silver"] = measure([*pipeline, "backfill", "--lake", f"{lake}", *_SPARK], _LOCAL)
    taken["gold"] = measure([*pipeline, "gold", "--lake", f"{lake}", *_SPARK], _LOCAL)
    taken["duckdb"] = measure([sys.executable, "-m", "benchmarks.pipeline.duckdb_gold", f"{lake}"])
    files = {
        layer: [each.stat().st_size for each in (lake / layer).rglob("*.parquet")]
        for layer in ("bronze", "silver", "gold")
    }
    return {
        "taken": {name: asdict(each) for name, each in taken.items()},
        "files": {layer: {"count": len(sizes), "bytes": sum(sizes)} for layer, sizes in files.items()},
        "cores": os.cpu_count(),
    }


def _take_in(events: int, pipeline: Sequence[str], lake: Path) -> Taken:
    """Measure how a journal in a Redis becomes bronze."""
    with redis_server(Placement.of_this_machine().others) as (_, port):
        grid = f"redis://{HOST}:{port}/0"
        measure([*pipeline, "generate", "--events", f"{events}", "--into", "grid", "--grid", grid])
        command = [*pipeline, "ingest", "--grid", grid, "--lake", f"{lake}", "--clock-past", f"{AGE}"]
        return measure([*command, *_SPARK], _LOCAL)


def _table(measured: dict[int, dict[str, Any]]) -> str:
    lines = [
        "| events | step | seconds | CPU, s | events a second and core | memory, MiB | of it Python | files |",
        "| --: | --- | --: | --: | --: | --: | --: | --- |",
    ]
    for events, result in sorted(measured.items()):
        for step, taken in result["taken"].items():
            memory = " | ".join(f"{taken[name] / 2**20:,.0f}" for name in ("peak_bytes", "peak_python_bytes"))
            lines.append(
                f"| {events:,} | {STEP_NAMES[step]} | {taken['seconds']:.0f} | {taken['cpu_seconds']:.1f} | "
                f"{events / taken['cpu_seconds']:,.0f} | {memory} | {_files(result, step)} |"
            )
    return "\n".join(lines)


def _files(result: dict[str, Any], step: str) -> str:
    files = result["files"].get("bronze" if step == "generate" else step)
    if step == "bronze" or not files or not files["count"]:
        return ""
    return f"{files['count']} of {files['bytes'] / files['count'] / 1e6:.1f} MB"


def _draw(measured: dict[int, dict[str, Any]]) -> None:
    for name, file, title, value, unit in (
        ("cpu_seconds", "pipeline-cpu.svg", "CPU time from events to gold", "CPU seconds", 1),
        ("peak_bytes", "pipeline-memory.svg", "Most memory of all processes", "MiB", 2**20),
    ):
        points = {
            step: [(size, found["taken"][step][name] / unit) for size, found in sorted(measured.items())]
            for step in DRAWN
        }
        series = [Series(step, each) for step, each in points.items()]
        draw(FIGURES / file, title=title, size="events", value=value, series=series)
        for each in series:
            click.echo(f"{each.label}: {name} grows as n^{slope(each.points):.2f}")


if __name__ == "__main__":
    main()
