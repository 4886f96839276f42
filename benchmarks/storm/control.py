"""What a storm of returning clients does to those who never left: ``python -m benchmarks.storm.control``.

A node with thousands of sessions is killed. All of them come back, through HAProxy, to the two nodes that are left;
these have sessions of their own, which receive updates all the while. Measured is what an update takes to reach them:
before, and until the last client has returned. In four variants: without storm control; with it, and clients that all
come in the very same moment; the same with a load balancer that holds them back; and clients that spread their return
as they were advised.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.measure import process_cpu
from benchmarks.placement import Placement, bound_to
from benchmarks.processes import PinnedProcess, scratch_folder
from benchmarks.storm.cluster import Cluster, running
from benchmarks.storm.crowd import all_topics, allow_descriptors
from benchmarks.storm.loop import StormFailed
from benchmarks.storm.outcome import MOST_TIMES, VARIANTS, Outcome, Variant, load, write
from benchmarks.storm.returning import ReturningCrowd
from benchmarks.storm.scenarios import PREPARING_AT_ONCE, publish_everything, warm_up

LOST: Final = "n3"
"""The node that is killed."""
LEFT: Final = ("n1", "n2")
"""The nodes that serve the established sessions, and then everybody."""

_BUCKET: Final = 0.1
"""Seconds of one point of the picture, and of one look at the processes."""
_EVERY: Final = 0.005
_STORM_SECONDS: Final = 55.0
_NANO: Final = 1e9
_MILLI: Final = 1e3
_DESCRIPTORS_PER_SESSION: Final = 3
_DESCRIPTORS: Final = 2_000

FILE: Final = Path(__file__).with_name("control.json")
"""What is drawn in the documentation."""
PICTURE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "figures" / "storms.svg"


@dataclass(frozen=True)
class Plan:
    """How large it is.

    Attributes:
        sessions: that come back.
        established: sessions that stay.
        topics: that they follow, each one of them.
        rate: updates per second of each topic.
        before: seconds of quiet before the storm.
        after: seconds that are shown after the last has returned.
        warm: whether sessions come and go on the nodes that are left before anything is measured.
        nice: by what the priority of the clients that come back is lowered for good, below that of all else that shares
            their core: in reality, clients have machines of their own.
        direct: whether the established sessions are connected to the nodes themselves, and not through HAProxy: what
            they notice then is the nodes' own part.
    """

    sessions: int = 3_000
    established: int = 300
    topics: int = 20
    rate: float = 20.0
    before: float = 5.0
    after: float = 3.0
    warm: bool = True
    nice: int = 5
    direct: bool = False


class _Sampler:
    """Looks at processes and at the crowd ten times a second."""

    def __init__(self, cluster: Cluster, crowd: ReturningCrowd) -> None:
        self._pids = {name: process.pid for name, process in cluster.processes.items()}
        self.crowd = crowd
        self._next = 0.0
        self._last: tuple[float, dict[str, float]] | None = None
        self.cores: list[tuple[float, float, float, float]] = []
        self.returns: list[tuple[float, int]] = []

    def tick(self) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _BUCKET
            self._look(now)
        self.crowd.tick()

    def _look(self, now: float) -> None:
        used = {name: process_cpu(pid) for name, pid in self._pids.items()}
        if self._last is not None:
            before, then = self._last
            rate = {name: max(0.0, used[name] - then[name]) / (now - before) for name in used}
            nodes = sum(rate[name] for name in LEFT)
            self.cores.append((now, rate["redis"], rate["haproxy"], nodes))
        self._last = (now, used)
        self.returns.append((now, self.crowd.phase.current))


def storm(name: str, variant: Variant, plan: Plan) -> Outcome:
    """Let it happen.

    Args:
        name: of the variant.
        variant: how it is met.
        plan: how large it is.

    Raises:
        SystemFailed: it could not be prepared.
    """
    allow_descriptors(plan.sessions * _DESCRIPTORS_PER_SESSION + _DESCRIPTORS)
    placement = Placement.of_this_machine()
    with (
        scratch_folder("control") as folder,
        running(
            placement, nodes=(*LEFT, LOST), settings=variant.settings, connection_rate=variant.connection_rate
        ) as cluster,
        bound_to(placement.others),
        contextlib.closing(ReturningCrowd()) as crowd,
    ):
        topics = all_topics(plan.sessions)
        publish_everything(cluster, crowd, topics, node=LOST)
        if plan.warm:
            warm_up(cluster, crowd, plan.sessions, LEFT)
        out = folder / "witness"
        crowd.add(plan.sessions)
        crowd.arrive(cluster.direct(LOST), expected="created", at_once=PREPARING_AT_ONCE)
        crowd.settle()
        with _witness(cluster, placement, plan, out) as witness:
            crowd.idle(_until_advised(variant.advised))
            os.nice(plan.nice)
            sampler = _Sampler(cluster, crowd)
            crowd.loop.run(_after(plan.before), seconds=plan.before + 5, tick=sampler.tick, every=_EVERY)
            failure = ""
            cluster.kill(LOST)
            crowd.cut()
            began = time.monotonic()
            phase = crowd.return_all(cluster.entry, advised=variant.advised, members=crowd.members)
            try:
                crowd.loop.run(
                    lambda: phase.current >= phase.wanted, seconds=_STORM_SECONDS, tick=sampler.tick, every=_EVERY
                )
                crowd.loop.run(_after(plan.after), seconds=plan.after + 5, tick=sampler.tick, every=_EVERY)
            except StormFailed as failed:
                failure = str(failed)
            witness.process.send_signal(signal.SIGTERM)
            witness.process.wait()
        failure = failure or out.with_name(out.name + ".failure").read_text()
        samples = array.array("q")
        samples.frombytes(out.read_bytes())
    return _outcome(name, plan, sampler, samples, began=began, failure=failure)


def _until_advised(advised: bool) -> float:
    """Clients that follow the advice must have heard of it: a node looks every 5 s whether it has outgrown."""
    return 7.0 if advised else 0.5


def _after(seconds: float) -> Any:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def _witness(cluster: Cluster, placement: Placement, plan: Plan, out: Path) -> PinnedProcess:
    ports = [(cluster.direct(node) if plan.direct else cluster.entry)[1] for node in LEFT]
    process = PinnedProcess(
        [
            *(sys.executable, "-m", "benchmarks.storm.witness", ",".join(map(str, ports)), ",".join(LEFT), str(out)),
            *("--sessions", str(plan.established), "--topics", str(plan.topics), "--rate", str(plan.rate)),
        ],
        core=placement.others,
        folder=out.parent,
        environment={"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    process.wait_ready(out.with_name(out.name + ".ready").exists)
    return process


def _outcome(
    variant: str, plan: Plan, sampler: _Sampler, samples: array.array[int], *, began: float, failure: str
) -> Outcome:
    crowd = sampler.crowd
    phase = crowd.phase
    finished = phase.finished if phase.current else began + _STORM_SECONDS
    pairs = [(at / _NANO - began, took / _NANO * _MILLI) for at, took in zip(samples[::2], samples[1::2], strict=True)]
    before = sorted(took for at, took in pairs if -plan.before <= at < 0)
    # By when they were published: an update that comes late because of the storm counts, though it be over.
    during = sorted(took for at, took in pairs if 0 <= at - took / _MILLI <= finished - began)
    buckets: dict[int, list[float]] = {}
    for at, took in pairs:
        if -plan.before <= at <= finished - began + plan.after:
            buckets.setdefault(int((at + plan.before) / _BUCKET), []).append(took)
    waits = sorted(phase.waits)
    return Outcome(
        variant=variant,
        sessions=plan.sessions,
        returned=phase.current,
        seconds=round(finished - began, 3),
        half=round(waits[len(waits) // 2], 3) if waits else 0.0,
        before=_percentiles(before),
        during=_percentiles(during),
        redis=round(max((redis for at, redis, _, _ in sampler.cores if at >= began), default=0.0), 3),
        refusals=dict(sorted(crowd.refusals.items())),
        latencies=[
            (round(number * _BUCKET - plan.before + _BUCKET / 2, 3), round(_percentile(sorted(some), 0.99), 3))
            for number, some in sorted(buckets.items())
        ],
        returns=[(round(at - began, 3), count if at >= began else 0) for at, count in sampler.returns],
        cores=[
            (round(at - began, 3), round(redis, 3), round(haproxy, 3), round(nodes, 3))
            for at, redis, haproxy, nodes in sampler.cores
        ],
        failure=failure,
    )


def _percentiles(ordered: Sequence[float]) -> dict[str, float]:
    return {
        "p50": round(_percentile(ordered, 0.5), 3),
        "p99": round(_percentile(ordered, 0.99), 3),
        "most": round(ordered[-1], 3) if ordered else 0.0,
        "samples": len(ordered),
    }


def _percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


@click.command()
@click.option("--only", type=click.Choice(list(VARIANTS)), help="One of them.")
@click.option("--sessions", default=Plan.sessions, show_default=True, help="Sessions that come back.")
@click.option("--established", default=Plan.established, show_default=True, help="Sessions that stay.")
@click.option("--runs", default=1, show_default=True, help="How often each; kept is the one in the middle.")
@click.option("--keep", is_flag=True, help="Keep the results in place of former ones, and draw.")
@click.option("--json", "as_json", is_flag=True, hidden=True)
@click.option("--direct", is_flag=True, help="Connect those who stay to the nodes themselves: what is the nodes' part?")
def main(
    *, only: str | None, sessions: int, established: int, runs: int, direct: bool, keep: bool, as_json: bool
) -> None:
    """Measure what a storm of returning clients does to those who never left.

    Exits with 1 if storm control did not keep what it promises.
    """
    plan = Plan(sessions=sessions, established=established, direct=direct)
    if as_json and only is not None:
        print(json.dumps(asdict(storm(only, VARIANTS[only], plan))))
        return
    outcomes = []
    for variant in [only] if only else VARIANTS:
        some = sorted((_alone(variant, plan) for _ in range(runs)), key=lambda each: each.times)
        for each in some:
            print(each.line(), flush=True)
        outcomes.append(some[len(some) // 2])
    if keep:
        kept = {each.variant: each for each in [*(load(FILE) if FILE.exists() else []), *outcomes]}
        write([kept[each] for each in VARIANTS if each in kept], FILE)
        draw(load(FILE), PICTURE)
    faults = [f"{each.variant}: {fault}" for each in outcomes for fault in each.faults()]
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


def _alone(variant: str, plan: Plan) -> Outcome:
    """Run one storm in a process of its own: it lowers its priority, and its children would inherit that."""
    command = [
        *(sys.executable, "-m", "benchmarks.storm.control", "--only", variant, "--json"),
        *("--sessions", str(plan.sessions), "--established", str(plan.established)),
        *(["--direct"] if plan.direct else []),
    ]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Outcome(**json.loads(text))


def draw(outcomes: Sequence[Outcome], file: Path) -> None:
    """Draw them; see ``benchmarks.storm.picture``."""
    from benchmarks.storm.picture import draw_storms  # noqa: PLC0415 - matplotlib is slow to load, and seldom needed

    draw_storms(outcomes, {name: variant.title for name, variant in VARIANTS.items()}, MOST_TIMES, file)


if __name__ == "__main__":
    main()
