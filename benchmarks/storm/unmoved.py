"""What replay costs while nobody fails over (P13): ``python -m benchmarks.storm.unmoved``.

One node has two crowds. The clients of one say that they understand replays, those of the other do not. Both are sent
the same number of updates, one after the other, in turns; each turn is compared with its neighbour. What is told is the
node's CPU for each delivery, and how many bytes a client receives: for each update, and for a subscribe with the values
that it brings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

import click

from benchmarks.measure import process_cpu
from benchmarks.paired import Ratio, values_in_turns
from benchmarks.placement import Placement
from benchmarks.storm.cluster import Cluster, running
from benchmarks.storm.crowd import Crowd, crowd_on
from benchmarks.storm.member import Interest, Member
from benchmarks.storm.publisher import Publisher
from benchmarks.storm.replay import ReplayedMember
from benchmarks.storm.scenarios import HOME, PREPARING_AT_ONCE, publish_everything

SESSIONS: Final = 300
"""Of each crowd."""
UPDATES: Final = 100
"""Of a turn."""
TURNS: Final = 20
TOPICS: Final = 10
"""That each session selects by a wildcard; all updates are of one of them."""
WITHOUT, WITH = "plain", "named"
"""Also the first segments of their topics: as long as each other, so that updates are."""
_MICRO: Final = 1e6


class Side:
    """One crowd.

    Args:
        cluster: whose node serves it.
        crowd: where its members belong.
        name: of its topics.
        member: makes one of them.

    Attributes:
        begun: bytes that a member received for its welcome, its subscribe and the values.
        received: bytes for each delivery, of each turn.
    """

    def __init__(self, cluster: Cluster, crowd: Crowd, name: str, member: type[Member]) -> None:
        self._cluster = cluster
        self._crowd = crowd
        topics = tuple(f"{name}/{number}" for number in range(TOPICS))
        publish_everything(cluster, crowd, topics)
        interest = Interest((f"{name}/*",), topics)
        self._members: list[Member] = [
            member(crowd.loop, crowd, f"{name}-{number}", interest) for number in range(SESSIONS)
        ]
        self._topic = topics[0]
        self._publisher = Publisher(crowd.loop, f"{name}-publisher")
        self._publisher.connect(cluster.direct(HOME))
        before = crowd.loop.bytes_in
        crowd.arrive(cluster.direct(HOME), expected="created", members=self._members, at_once=PREPARING_AT_ONCE)
        crowd.settle()
        self.begun = (crowd.loop.bytes_in - before) / SESSIONS
        self.received: list[float] = []

    def measure(self) -> float:
        """Send updates one by one; returns microseconds of the node's CPU for each delivery.

        Raises:
            StormFailed: something was missed, doubled, or not received in time.
        """
        crowd, pid = self._crowd, self._cluster.processes[HOME].pid
        cpu, size = process_cpu(pid), crowd.loop.bytes_in
        for _ in range(UPDATES):
            crowd.goals[self._topic] += 1
            phase = crowd.expect(self._members, [self._topic])
            self._publisher.publish([(self._topic, crowd.goals[self._topic])])
            crowd.loop.run(
                lambda phase=phase: phase.current >= phase.wanted and self._publisher.done,  # type: ignore[misc]
                seconds=crowd.patience,
                tick=crowd.acknowledge_due,
            )
        crowd.settle()
        deliveries = UPDATES * SESSIONS
        self.received.append((crowd.loop.bytes_in - size) / deliveries)
        return (process_cpu(pid) - cpu) / deliveries * _MICRO


def compare(turns: int) -> tuple[dict[str, Side], dict[str, list[float]]]:
    """Drive both crowds in turns; returns them, and the CPU of each turn."""
    placement = Placement.of_this_machine()
    with running(placement, balancer=False) as cluster, crowd_on(placement.others) as crowd:
        sides = {
            WITHOUT: Side(cluster, crowd, WITHOUT, Member),
            WITH: Side(cluster, crowd, WITH, ReplayedMember),
        }
        measures: dict[str, Callable[[], float]] = {name: side.measure for name, side in sides.items()}
        return sides, values_in_turns(measures, turns)


def _range(values: Sequence[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


@click.command()
@click.option("--turns", default=TURNS, show_default=True, help="Of each crowd.")
def main(turns: int) -> None:
    """Measure, and print."""
    sides, cpu = compare(turns)
    for name, side in sides.items():
        title = {WITHOUT: "without", WITH: "with"}[name]
        print(
            f"{title}: {_range(cpu[name])} µs of the node's CPU for each delivery; {_range(side.received)} bytes for "
            f"each; {side.begun:.0f} bytes for a welcome, a subscribe and {TOPICS} values"
        )
    print(f"with / without: {Ratio.of(cpu[WITHOUT], cpu[WITH])}")


if __name__ == "__main__":
    main()
