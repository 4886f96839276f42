"""What the session journal costs a node: ``python -m benchmarks.journal``.

Two clusters run at the same time, one with the journal and one without. They are given the same work in short turns, a
second or two each, and every turn is compared with its neighbour (``benchmarks.paired``). After what ends or begins
connections a second is waited before the clocks are read, so that writing the events is counted in.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NoReturn, TypeAlias

import click

from benchmarks.generator.driver import Load, build, drive
from benchmarks.paired import Ratio, values_in_turns
from benchmarks.placement import Placement
from benchmarks.processes import scratch_folder
from benchmarks.progress import Silent
from benchmarks.storm.cluster import NODES, Cluster, running
from benchmarks.storm.crowd import Crowd, allow_descriptors, crowd_on, shared_topics
from benchmarks.storm.loop import StormFailed
from benchmarks.storm.scenarios import HOME, PREPARING_AT_ONCE, REFUGE, publish_everything, settle_in, warm_up
from benchmarks.systems.base import Endpoint, Role, SystemFailed, SystemUnavailable, WireProtocol
from benchmarks.systems.gateway import BENCHMARK_SETTINGS, CONNECT_TARGET

OFF, ON = "off", "on"
SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    OFF: BENCHMARK_SETTINGS,
    ON: {**BENCHMARK_SETTINGS, "journal": ""},
}
"""Of the nodes; a switch has no value."""

LOADS: Final[Mapping[str, Load]] = {
    "a delivery, 1,000 sessions share a topic": Load(1_000, rate=50.0, window=64, warm_up=0.5, measure=1.0),
    "a delivery, 500 sessions have a topic each": Load(500, topics=500, window=500, warm_up=0.5, measure=1.0),
}
REATTACH: Final = "a connection lost and a reattach"
FAILOVER: Final = "a connection lost and a failover"

SESSIONS: Final = 1_000
WRITTEN: Final = 1.0
"""Seconds until a node has written what it told: twice the time in which it gathers events."""
DELIVERY_BOUND: Final = 1.03
COMEBACK_BOUND: Final = 1.10
"""What is demanded: at most so much of what it costs without the journal."""
_DESCRIPTORS: Final = 8_000
_MICROSECONDS: Final = 1e6

Clusters: TypeAlias = Mapping[str, Cluster]
Values: TypeAlias = dict[str, list[float]]
"""Microseconds of the nodes' CPU, by ``OFF`` and ``ON``, one for each turn."""


def deliveries(placement: Placement, load: Load, turns: int) -> Values:
    """Measure what a delivery costs.

    Raises:
        SystemFailed: what was delivered was not right.
    """
    with scratch_folder("journal") as folder, _clusters(placement, [HOME]) as clusters:
        return values_in_turns(
            {name: _delivery(each, load, placement, folder) for name, each in clusters.items()}, turns
        )


def comebacks(placement: Placement, sessions: int, turns: int) -> Mapping[str, Values]:
    """Measure what it costs that all sessions lose their connection and come back: to their node, to the other one.

    Raises:
        SystemFailed: a session did not come back as it should.
    """
    with _clusters(placement, NODES) as clusters, contextlib.ExitStack() as stack:
        crowds = {name: stack.enter_context(crowd_on(placement.others)) for name in clusters}
        try:
            for name, cluster in clusters.items():
                settle_in(cluster, crowds[name], sessions)
                warm_up(cluster, crowds[name], sessions, [REFUGE])
            returning = {name: _Returning(each, crowds[name], sessions) for name, each in clusters.items()}
            return {
                REATTACH: values_in_turns({name: each.reattach for name, each in returning.items()}, turns),
                FAILOVER: values_in_turns({name: each.fail_over for name, each in returning.items()}, turns),
            }
        except StormFailed as failed:
            raise SystemFailed(str(failed)) from failed


class _Returning:
    """Sessions of one cluster that lose their connections again and again.

    Args:
        cluster: that serves them.
        crowd: of all of them, connected to ``HOME``.
        sessions: how many they are.
    """

    def __init__(self, cluster: Cluster, crowd: Crowd, sessions: int) -> None:
        self._cluster = cluster
        self._crowd = crowd
        self._sessions = sessions
        self._node = HOME

    def reattach(self) -> float:
        """All come back to the node that keeps their buffers; returns microseconds of CPU for each session."""
        return self._cost("reattached")

    def fail_over(self) -> float:
        """All come back to the other node; returns microseconds of CPU of both nodes for each session."""
        self._node = REFUGE if self._node == HOME else HOME
        return self._cost("failed_over")

    def _cost(self, outcome: str) -> float:
        cluster, crowd = self._cluster, self._crowd

        def lose() -> None:
            crowd.cut()
            for node in NODES:
                cluster.wait_connected(node, 0)

        def come_back() -> None:
            crowd.arrive(cluster.direct(self._node), expected=outcome, at_once=PREPARING_AT_ONCE)
            crowd.settle()

        lost = self._cpu_of(lose)
        publish_everything(cluster, crowd, shared_topics(self._sessions))
        crowd.idle(WRITTEN)
        return (lost + self._cpu_of(come_back)) / self._sessions * _MICROSECONDS

    def _cpu_of(self, work: Callable[[], None]) -> float:
        before = self._cluster.cpu(NODES)[Role.SERVER]
        work()
        self._crowd.idle(WRITTEN)
        return self._cluster.cpu(NODES)[Role.SERVER] - before


@contextlib.contextmanager
def _clusters(placement: Placement, nodes: Sequence[str]) -> Iterator[Clusters]:
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(running(placement, nodes=nodes, settings=settings, balancer=False))
            for name, settings in SETTINGS.items()
        }


def _delivery(cluster: Cluster, load: Load, placement: Placement, folder: Path) -> Callable[[], float]:
    turn = 0

    def measure() -> float:
        nonlocal turn
        turn += 1
        host, port = cluster.direct(HOME)
        report = drive(
            build(folder),
            Endpoint(WireProtocol.GATEWAY, host, port, CONNECT_TARGET, CONNECT_TARGET),
            load,
            topic=f"turn{turn}x",
            core=placement.others,
            progress=Silent(),
            pids={Role.SERVER: [cluster.processes[HOME].pid]},
        )
        cpu = report.cpu_per_delivery(Role.SERVER)
        if report.failures or cpu is None:
            raise SystemFailed("; ".join(report.sentences()) or "nothing was delivered")
        return cpu

    return measure


HEAD: Final = (
    "| CPU of the node for … | without, µs | with the journal, µs | more (95 % interval) | demanded |",
    "| --- | --: | --: | --- | --- |",
)


def row(what: str, values: Values) -> str:
    """Make a row of the table, in Markdown."""
    bound = COMEBACK_BOUND if what in {REATTACH, FAILOVER} else DELIVERY_BOUND
    ratio = Ratio.of(values[OFF], values[ON])
    if ratio.high <= bound:
        judged = "met"
    elif ratio.middle <= bound:
        judged = "met by the median"
    else:
        judged = "not met" if ratio.low > bound else "in doubt"
    medians = " | ".join(f"{median(values[name]):.2f}" for name in (OFF, ON))
    return f"| {what} | {medians} | {ratio} | ≤ {bound - 1:.0%}: {judged} |"


@click.command()
@click.option("--turns", default=24, show_default=True, help="Turns of each.")
@click.option("--sessions", default=SESSIONS, show_default=True, help="Sessions that come back.")
def main(turns: int, sessions: int) -> None:
    """Measure what the session journal costs, and print a table."""
    signal.signal(signal.SIGTERM, _stop)
    allow_descriptors(_DESCRIPTORS)
    placement = Placement.of_this_machine()
    print(*HEAD, sep="\n", flush=True)
    try:
        for what, load in LOADS.items():
            print(row(what, deliveries(placement, load, turns)), flush=True)
        for what, values in comebacks(placement, sessions, turns).items():
            print(row(what, values), flush=True)
    except (SystemFailed, SystemUnavailable) as error:
        raise click.ClickException(str(error)) from error


def _stop(number: int, _frame: object) -> NoReturn:
    """Leave by an exception, so that everything that was started is stopped."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
