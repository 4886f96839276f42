"""Draws where a node spends its CPU under the benchmarks' loads: ``python -m benchmarks.flamegraph``, or `make flames`.

The stacks come from py-spy, which looks at a running process from outside, some hundred times a second. It is not
among the development dependencies (`make flames` installs it), and needs the right to trace other processes.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import click

from benchmarks.cases import fanout, own_topic, steady
from benchmarks.commandline import chosen_names, prepare_process
from benchmarks.flames import draw, parse
from benchmarks.generator.driver import GeneratorFailed, Load, build, drive
from benchmarks.placement import Placement
from benchmarks.processes import scratch_folder
from benchmarks.progress import Silent
from benchmarks.storm.case import SESSIONS
from benchmarks.storm.cluster import running
from benchmarks.storm.crowd import crowd_on, shared_topics
from benchmarks.storm.loop import StormFailed
from benchmarks.storm.scenarios import HOME, PREPARING_AT_ONCE, REFUGE, publish_everything, settle_in, warm_up
from benchmarks.systems.base import Role, StartOptions, SystemFailed, SystemUnavailable
from benchmarks.systems.gateway import GatewayNode

FOLDER: Final = Path(__file__).parents[1] / "docs" / "explanation" / "figures"
SAMPLES_PER_SECOND: Final = 250
"""More would slow down the process, which stands still while it is looked at."""
SECONDS: Final = 8.0
"""Of updates."""
_WARM_UP: Final = 1.0
_ARRIVING: Final = ("Node.serve (", "Asking.")
"""Functions of a node that takes in connections, which subscribers do before there are updates: not the subject."""
_LEAST_SAMPLES: Final = 500
"""Fewer do not make a picture; something went wrong."""
STORMS: Final = 5
"""Failovers that are added up, each with processes of its own."""
_LONGEST: Final = 120
"""Seconds after which py-spy gives up if nobody stops it."""
_ATTACHED: Final = "Sampling process"
"""What py-spy prints once it samples."""


@contextlib.contextmanager
def sampled(program: str, pid: int, output: Path, core: int) -> Iterator[None]:
    """Have a process sampled for the length of the block; *output* has the folded stacks afterwards.

    Args:
        program: py-spy.
        pid: of the process.
        output: file to write.
        core: for py-spy itself.

    Raises:
        click.ClickException: it could not look at the process; with what it said.
    """
    command = [
        *("taskset", "--cpu-list", str(core), program, "record", "--format", "raw", "--function", "--native"),
        *("--pid", str(pid)),
        *("--rate", str(SAMPLES_PER_SECOND), "--duration", str(_LONGEST), "--output", str(output)),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        try:
            said = []
            for line in process.stdout:
                said.append(line.strip())
                if _ATTACHED in line:
                    break
            else:
                raise click.ClickException(f"py-spy did not start: {' / '.join(said)}")
            yield
            process.send_signal(signal.SIGINT)
            process.communicate()
        finally:
            process.kill()


def record_updates(load: Load, program: str, folder: Path) -> list[str]:
    """Sample a node while the generator publishes to it and receives from it; a first, short run warms the node up."""
    placement = Placement.of_this_machine()
    output = folder / "updates.folded"
    generator = build(folder)
    with GatewayNode().running(placement, StartOptions(connections=load.subscribers)) as node:
        pid = node.pids()[Role.SERVER][0]

        def play(topic: str, seconds: float) -> None:
            played = replace(load, measure=seconds)
            report = drive(generator, node.endpoint, played, topic=topic, core=placement.others, progress=Silent())
            if report.failures:
                raise SystemFailed("; ".join(report.sentences()))

        play("warm", _WARM_UP)
        with sampled(program, pid, output, placement.others):
            play("flame", SECONDS)
    return [line for line in output.read_text().splitlines() if not any(each in line for each in _ARRIVING)]


def record_failover(program: str, folder: Path) -> list[str]:
    """Sample the node that is left while the sessions of the one that was killed come to it.

    They come straight to it, and not all in the same instant: a node that stands still for samples would be too slow
    for HAProxy's patience.
    """
    placement = Placement.of_this_machine()
    lines = []
    for number in range(STORMS):
        output = folder / f"failover-{number}.folded"
        with running(placement, balancer=False) as cluster, crowd_on(placement.others) as crowd:
            settle_in(cluster, crowd, SESSIONS)
            warm_up(cluster, crowd, SESSIONS, [REFUGE])
            cluster.kill(HOME)
            crowd.cut()
            publish_everything(cluster, crowd, shared_topics(SESSIONS), node=REFUGE)
            with sampled(program, cluster.processes[REFUGE].pid, output, placement.others):
                crowd.arrive(cluster.direct(REFUGE), expected="failed_over", at_once=PREPARING_AT_ONCE)
                crowd.settle()
        lines += output.read_text().splitlines()
    return lines


@dataclass(frozen=True)
class Picture:
    """A flame graph.

    Attributes:
        title: above it.
        record: puts a node under load and returns its folded stacks; is given the profiler and a scratch folder.
    """

    title: str
    record: Callable[[str, Path], list[str]]

    def file(self, name: str) -> str:
        """Tell the name of its file."""
        return f"flame-{name.replace('_', '-')}.svg"


_FANOUT: Final = Load(fanout.SATURATED_SUBSCRIBERS, window=fanout.WINDOW)
_STEADY: Final = Load(steady.SUBSCRIBERS, rate=steady.RATE, window=steady.LEAST_WINDOW)
_OWN_TOPIC: Final = Load(
    own_topic.SUBSCRIBERS,
    topics=own_topic.SUBSCRIBERS,
    publishers=own_topic.PUBLISHERS,
    rate=own_topic.RATES[own_topic.VARIANT],
    window=own_topic.WINDOW,
)

LOADS: Final[Mapping[str, Picture]] = {
    "fanout": Picture(
        f"A node that delivers: {_FANOUT.subscribers} subscribers, as fast as it goes", partial(record_updates, _FANOUT)
    ),
    "steady": Picture(
        f"A node that delivers: {_STEADY.subscribers:,} subscribers, {_STEADY.rate:g} updates/s",
        partial(record_updates, _STEADY),
    ),
    "own_topic": Picture(
        f"A node that takes in and delivers: {_OWN_TOPIC.subscribers:,} topics with a subscriber each",
        partial(record_updates, _OWN_TOPIC),
    ),
    "failover": Picture(f"A node that takes over: {SESSIONS:,} sessions of a killed node", record_failover),
}
"""By name."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=FOLDER)
@click.option("--only", metavar="NAMES", help=f"Which, with commas between them: {', '.join(LOADS)}.  [default: all]")
@click.option("--py-spy", "program", default="py-spy", show_default=True, help="The profiler.")
def main(folder: Path, only: str | None, program: str) -> None:
    """Put a node under each load, sample it, and write an SVG for each to FOLDER (that of the documentation).

    All of it takes about two minutes.

    Raises:
        click.ClickException: there is no profiler, or something that is needed did not work.
    """
    names = chosen_names(LOADS, only)
    if (found := shutil.which(program)) is None:
        raise click.ClickException(f"{program} is not here: pip install py-spy, or name it by --py-spy")
    prepare_process()
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        picture = LOADS[name]
        click.echo(f"{name} … ", nl=False)
        try:
            with scratch_folder("flamegraph") as scratch:
                root = parse(picture.record(found, scratch))
            if root.samples < _LEAST_SAMPLES:
                raise SystemFailed(f"there are {root.samples} samples only; try again")
        except (SystemUnavailable, SystemFailed, GeneratorFailed, StormFailed, RuntimeError, ValueError) as reason:
            raise click.ClickException(f"{name}: {reason}") from reason
        file = folder / picture.file(name)
        file.write_text(draw(root, f"{picture.title} ({root.samples:,} samples)"))
        click.echo(f"{root.samples:,} samples: {file.name}")


if __name__ == "__main__":
    main()
