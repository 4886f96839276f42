"""The first snapshot: a thousand topics at once."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import ClassVar, Final

from benchmarks.cases.base import OURS, Better, Case, Context, Figure, Row
from benchmarks.storm.cluster import Cluster, running
from benchmarks.storm.crowd import Crowd, crowd_on
from benchmarks.storm.loop import StormFailed
from benchmarks.storm.member import Interest, Member
from benchmarks.storm.scenarios import HOME, publish_everything
from benchmarks.systems.base import Role

_NAME: Final = "snapshot"
TOPICS: Final = 1_000
_TOPICS: Final = [f"snapshot/{number}" for number in range(TOPICS)]
_ONE: Final = Interest(("snapshot/*",), tuple(_TOPICS))
_MANY: Final = Interest(tuple(_TOPICS), tuple(_TOPICS))
REPETITIONS: Final = 10
"""Sessions one after the other; the median counts."""
COLD: Final = "one selector, the node knows none of the values"
WARM: Final = "one selector, the node follows the topics"
SINGLE: Final = "1,000 selectors, the node follows the topics"
_MILLISECONDS: Final = 1e3
_KIB: Final = 1024

COMPLETE: Final = Figure("complete", "complete after", "ms", Better.LOWER, 2)
RECEIVED: Final = Figure("received", "received", "KiB", Better.LOWER)
SERVER_CPU: Final = Figure("server_cpu", "server CPU", "ms", Better.LOWER, 2)
STORE_CPU: Final = Figure("redis_cpu", "Redis CPU", "ms", Better.LOWER, 2)


class SnapshotCase(Case):
    """See ``about``."""

    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "First snapshot"
    about: ClassVar[str] = (
        "A new session subscribes to 1,000 topics of one root with 100-byte values: from its connect until it holds "
        "all of them; bytes received include handshake and welcome."
    )
    figures: ClassVar[Sequence[Figure]] = (COMPLETE, RECEIVED, SERVER_CPU, STORE_CPU)
    contestants: ClassVar[Sequence[str]] = (OURS,)

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        """See ``Case``."""
        context.progress.say("snapshot: 1,000 topics at once")
        rows = []
        with (
            running(context.placement, nodes=[HOME], balancer=False, checkout=context.checkout) as cluster,
            crowd_on(context.placement.others) as crowd,
        ):
            try:
                publish_everything(cluster, crowd, _TOPICS)
                rows.append(_row(COLD, contestant, [_subscribe(cluster, crowd, _ONE)]))
                # Somebody who stays, so that the node goes on following the topics.
                _subscribe(cluster, crowd, _ONE, stay=True)
                for variant, interest in ((WARM, _ONE), (SINGLE, _MANY)):
                    runs = [_subscribe(cluster, crowd, interest) for _ in range(REPETITIONS)]
                    rows.append(_row(variant, contestant, runs))
            except StormFailed as failed:
                rows.append(Row(_NAME, WARM, contestant, {}, [str(failed)]))
        return rows


def _subscribe(cluster: Cluster, crowd: Crowd, interest: Interest, *, stay: bool = False) -> dict[str, float]:
    member = Member(crowd.loop, crowd, f"reader-{len(crowd.members)}", interest)
    crowd.members.append(member)
    before, received = cluster.cpu([HOME]), crowd.loop.bytes_in
    phase = crowd.arrive(cluster.direct(HOME), expected="created", members=[member])
    received = crowd.loop.bytes_in - received
    crowd.settle()
    after = cluster.cpu([HOME])
    if not stay:
        crowd.bye([member])
    return {
        COMPLETE.name: phase.seconds * _MILLISECONDS,
        RECEIVED.name: received / _KIB,
        SERVER_CPU.name: (after[Role.SERVER] - before[Role.SERVER]) * _MILLISECONDS,
        STORE_CPU.name: (after[Role.STORE] - before[Role.STORE]) * _MILLISECONDS,
    }


def _row(variant: str, contestant: str, runs: Sequence[dict[str, float]]) -> Row:
    return Row(_NAME, variant, contestant, {name: median(each[name] for each in runs) for name in runs[0]})
