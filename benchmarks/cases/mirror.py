"""What it costs to keep an exact copy of each session at another node."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import ClassVar, Final

from benchmarks.cases.base import OURS, Better, Case, Context, Figure, Reference, Row, Target
from benchmarks.generator.driver import Load, Report, build, drive
from benchmarks.paired import Ratio, in_turns
from benchmarks.progress import Silent
from benchmarks.storm.cluster import NODES, Cluster, running
from benchmarks.storm.scenarios import HOME, REFUGE
from benchmarks.systems.base import Endpoint, Role, SystemFailed, WireProtocol
from benchmarks.systems.gateway import CONNECT_TARGET

_NAME: Final = "mirror"
SYNC: Final = "output waits (sync)"
"""The same nodes, whose updates leave when the backup has them."""
MODES: Final[Mapping[str, str]] = {OURS: "async", SYNC: "sync"}

STEADY: Final = "1,000 subscribers share a topic, 50 updates/s"
OWN: Final = "500 sessions have a topic each, 2,000 updates/s"
LOADS: Final[Mapping[str, Load]] = {
    STEADY: Load(1_000, rate=50.0, window=64, warm_up=1.0, measure=2.0),
    OWN: Load(500, topics=500, rate=2_000.0, window=500, warm_up=1.0, measure=2.0),
}
"""Updates by a schedule that both kinds of nodes keep up with, so that nothing piles up."""
TURNS: Final = 10
QUICK_TURNS: Final = 3
_WITHOUT, _WITH = "without", "with"
_LIVE, _BACKUP, _ALL = "live", "backup", "all"
STEADY_BOUND: Final = 1.15
OWN_BOUND: Final = 1.35
"""What is demanded: at most so much of what the live node uses without a backup."""

LIVE_WITHOUT: Final = Figure("live_without", "live node, without", "µs", Better.LOWER, 2)
LIVE_WITH: Final = Figure("live_with", "… with a backup", "µs", Better.LOWER, 2)
LIVE_RATIO: Final = Figure("live_ratio", "… ratio", "", Better.LOWER, 3)
BACKUP_WITHOUT: Final = Figure("backup_without", "the other node, without", "µs", Better.LOWER, 2)
BACKUP_WITH: Final = Figure("backup_with", "… as the backup", "µs", Better.LOWER, 2)
ALL_WITHOUT: Final = Figure("all_without", "all processes, without", "µs", Better.LOWER, 2)
ALL_WITH: Final = Figure("all_with", "… with a backup", "µs", Better.LOWER, 2)
ALL_RATIO: Final = Figure("all_ratio", "… ratio", "", Better.LOWER, 3)

Turns = Mapping[str, Sequence[float]]
"""Microseconds for each delivery, one for each turn, by ``_WITHOUT`` and ``_WITH``."""


class MirrorCase(Case):
    """See ``about``."""

    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "Price of a backup"
    about: ClassVar[str] = (
        "CPU for each delivery of a node that keeps copies of its sessions at another one, beside the same pair of "
        "nodes without a backup. Both pairs run at the same time and are driven in short turns, and each turn is "
        "compared with its neighbour: the ratio is the median of these. All processes are the live node, its backup "
        "and Redis."
    )
    figures: ClassVar[Sequence[Figure]] = (
        LIVE_WITHOUT, LIVE_WITH, LIVE_RATIO, BACKUP_WITHOUT, BACKUP_WITH, ALL_WITHOUT, ALL_WITH, ALL_RATIO,
    )  # fmt: skip
    contestants: ClassVar[Sequence[str]] = (OURS, SYNC)
    rounds: ClassVar[int] = 1
    apart: ClassVar[str] = "the published run is older than it"
    targets: ClassVar[Sequence[Target]] = (
        Target(
            "a backup, async, steady fan-out: at most 15 % more CPU of the live node",
            Reference(_NAME, STEADY, OURS, LIVE_RATIO.name),
            None,
            factor=STEADY_BOUND,
            at_least=False,
        ),
        Target(
            "a backup, async, own topics: at most 35 % more CPU of the live node",
            Reference(_NAME, OWN, OURS, LIVE_RATIO.name),
            None,
            factor=OWN_BOUND,
            at_least=False,
        ),
    )

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        """See ``Case``."""
        rows = []
        for variant, load in LOADS.items():
            context.progress.say(f"mirror: {variant}, {contestant}")
            try:
                cpu = _compare(load, MODES[contestant], context)
            except SystemFailed as failed:
                rows.append(Row(_NAME, variant, contestant, {}, [str(failed)]))
                continue
            more, more_in_all = (Ratio.of(cpu[whose][_WITHOUT], cpu[whose][_WITH]) for whose in (_LIVE, _ALL))
            values = {f"{whose}_{name}": median(turns[name]) for whose, turns in cpu.items() for name in turns}
            values |= {LIVE_RATIO.name: more.middle, ALL_RATIO.name: more_in_all.middle}
            details = {
                "live": str(more),
                "all": str(more_in_all),
                "turns": {whose: dict(turns) for whose, turns in cpu.items()},
            }
            rows.append(Row(_NAME, variant, contestant, values, details=details))
        return rows


def _compare(load: Load, mode: str, context: Context) -> Mapping[str, Turns]:
    """Drive nodes with and without a backup in turns; returns the CPU of the live node, its backup and all together."""
    cpu: dict[str, dict[str, list[float]]] = {whose: defaultdict(list) for whose in (_LIVE, _BACKUP, _ALL)}
    reports: dict[str, Report] = {}
    with _clusters(mode, context) as clusters:
        turns = {name: _Turns(name, cluster, load, context, reports) for name, cluster in clusters.items()}
        count = QUICK_TURNS if context.quick else TURNS
        # One turn before all that count: code and scripts are loaded, allocators have grown.
        for number, (name, value) in enumerate(in_turns({key: each.measure for key, each in turns.items()}, count + 1)):
            if number >= len(clusters):
                report = reports[name]
                cpu[_LIVE][name].append(value)
                cpu[_BACKUP][name].append(report.cpu_per_delivery(Role.BALANCER) or 0.0)
                cpu[_ALL][name].append(report.system_cpu_per_delivery or 0.0)
    return cpu


@contextlib.contextmanager
def _clusters(mode: str, context: Context) -> Iterator[Mapping[str, Cluster]]:
    backed = {"backup": "auto", "mirror": mode}
    with contextlib.ExitStack() as stack:
        clusters = {
            name: stack.enter_context(
                running(
                    *(context.placement,),
                    nodes=NODES,
                    settings=settings,
                    balancer=False,
                    links=True,
                    checkout=context.checkout,
                )
            )
            for name, settings in {_WITHOUT: {}, _WITH: backed}.items()
        }
        for cluster in clusters.values():
            cluster.wait_linked()
        yield clusters


class _Turns:
    """Drives one pair of nodes again and again.

    Args:
        name: of the pair.
        cluster: the pair; clients are at the first node.
        load: of each turn.
        context: of the run.
        reports: takes the last report, by name.
    """

    def __init__(self, name: str, cluster: Cluster, load: Load, context: Context, reports: dict[str, Report]) -> None:
        self._name = name
        self._cluster = cluster
        self._load = load
        self._context = context
        self._reports = reports
        self._turn = 0

    def measure(self) -> float:
        """Drive once; returns microseconds of the live node's CPU for each delivery.

        Raises:
            SystemFailed: what was delivered was not right.
        """
        self._turn += 1
        host, port = self._cluster.direct(HOME)
        processes = self._cluster.processes
        report = self._reports[self._name] = drive(
            build(self._context.folder / "generator"),
            Endpoint(WireProtocol.GATEWAY, host, port, CONNECT_TARGET, CONNECT_TARGET),
            self._load,
            topic=f"turn{self._turn}x",
            core=self._context.placement.others,
            progress=Silent(),
            # There is no balancer; the backup takes its place, so that its share is told apart.
            pids={
                Role.SERVER: [processes[HOME].pid],
                Role.BALANCER: [processes[REFUGE].pid],
                Role.STORE: [processes["redis"].pid],
            },
        )
        cpu = report.cpu_per_delivery(Role.SERVER)
        if report.failures or cpu is None:
            raise SystemFailed("; ".join(report.sentences()) or "nothing was delivered")
        return cpu
