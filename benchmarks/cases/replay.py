"""The node is killed: what it costs to send all that was missed, beside current values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from benchmarks.cases.base import OURS, Better, Case, Context, Figure, Row, Target
from benchmarks.storm.case import SESSIONS, StormCase, all_recovered, allow_sessions, row_of
from benchmarks.storm.cluster import running
from benchmarks.storm.crowd import crowd_on
from benchmarks.storm.loop import StormFailed
from benchmarks.storm.replay import NEIGHBOURS, fail_over

_NAME: Final = "replay"
SNAPSHOTS: Final = "with snapshots"
"""The same nodes, serving clients that do not say where they were."""
MISSED: Final = (1, 20, 60)
"""Updates of each of the 70 shared topics while sessions are away. With 20 of each, a node has all of them at hand
(`RECENT_ENTRIES`, 2,000 of a partition); with 60 it has to read what is older from Redis, once for all."""
_KIB: Final = 1024

RECEIVED: Final = Figure("received", "received / session", "KiB", Better.LOWER, 2)


def variant(missed: int) -> str:
    """Name a workload."""
    return f"{SESSIONS:,} sessions at once, {missed} missed of each topic"


class ReplayCase(Case):
    """See ``about``."""

    name: ClassVar[str] = _NAME
    title: ClassVar[str] = "Failover with replay, and with snapshots"
    about: ClassVar[str] = (
        "The node of 2,000 sessions is killed, and two of the three topics of each change once, 20 or 60 times; all "
        "come back at once through HAProxy to a node that follows these topics. With replay they say where they were "
        "and are sent every update, which is checked one by one; with snapshots, as clients of the first release, the "
        "current values of all three topics. CPU is that of the surviving node, Redis and HAProxy."
    )
    figures: ClassVar[Sequence[Figure]] = (*StormCase.figures, RECEIVED)
    contestants: ClassVar[Sequence[str]] = (OURS, SNAPSHOTS)
    targets: ClassVar[Sequence[Target]] = tuple(all_recovered(_NAME, variant(missed)) for missed in MISSED)
    apart: ClassVar[str] = "it takes three minutes"

    def run(self, contestant: str, context: Context) -> Sequence[Row]:
        """See ``Case``."""
        allow_sessions(SESSIONS + NEIGHBOURS)
        rows = []
        for missed in MISSED:
            context.progress.say(f"replay: {SESSIONS:,} sessions, {contestant}, {missed} missed")
            with (
                running(context.placement, checkout=context.checkout) as cluster,
                crowd_on(context.placement.others) as crowd,
            ):
                try:
                    storm, received = fail_over(cluster, crowd, SESSIONS, missed=missed, replay=contestant == OURS)
                except StormFailed as failed:
                    rows.append(Row(_NAME, variant(missed), contestant, {}, [str(failed)]))
                    continue
            more = {RECEIVED.name: received / _KIB / storm.sessions}
            rows.append(row_of(_NAME, variant(missed), contestant, storm, more))
        return rows
