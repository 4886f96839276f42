"""The storms themselves, from an idle cluster to the moment when the last session has its current values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from benchmarks.storm.cluster import NODES, Cluster
from benchmarks.storm.crowd import Crowd, Phase, all_topics, interest_of, shared_topics
from benchmarks.storm.loop import StormFailed
from benchmarks.storm.member import Member
from benchmarks.storm.publisher import Publisher
from benchmarks.systems.base import Role

HOME, REFUGE = NODES
"""The node on which storms begin, and the one that is left when it has been killed."""
WARM_UP: Final = 200
"""Sessions that come and go before anything is measured: code and scripts are loaded, allocators have grown."""
PREPARING_AT_ONCE: Final = 500
"""Sessions on their way together where arriving is not what is measured."""
HANDED_OVER_AT_ONCE: Final = 20
"""Sessions on their way from one node to the other together."""


@dataclass(frozen=True)
class Storm:
    """What a storm cost.

    Attributes:
        sessions: that took part.
        recovered: those that got the outcome that was demanded.
        seconds: until the last had its current values.
        waits: seconds until each had, in order.
        cpu: CPU seconds by role. ``SERVER`` is the surviving node's alone after a failover.
        own_cpu: of the storm client.
        failure: what was wrong; empty if nothing.
    """

    sessions: int
    recovered: int
    seconds: float
    waits: Sequence[float]
    cpu: Mapping[Role, float]
    own_cpu: float
    failure: str = ""

    def per_session(self, role: Role) -> float:
        """CPU of a role, in seconds, for each session."""
        return self.cpu.get(role, 0.0) / self.sessions


def publish_everything(cluster: Cluster, crowd: Crowd, topics: Sequence[str], *, node: str = HOME) -> None:
    """Give each topic its next value.

    Raises:
        StormFailed: the node refused one.
    """
    for topic in topics:
        crowd.goals[topic] = crowd.goals.get(topic, 0) + 1
    publisher = Publisher(crowd.loop, "storm-publisher")
    publisher.connect(cluster.direct(node))
    publisher.publish_all((topic, crowd.goals[topic]) for topic in topics)
    publisher.leave()


def warm_up(cluster: Cluster, crowd: Crowd, sessions: int, nodes: Sequence[str]) -> None:
    """Let sessions come, come back and go on each node; *sessions* is how many have topics with values."""
    for node in nodes:
        warm = Crowd()
        warm.goals = crowd.goals
        try:
            warm.add(min(WARM_UP, sessions), prefix=f"warm-{node}")
            warm.arrive(cluster.direct(node), expected="created", at_once=PREPARING_AT_ONCE)
            warm.settle()
            warm.cut()
            cluster.wait_connected(node, 0)
            warm.arrive(cluster.direct(node), expected="reattached")
            warm.settle()
            warm.bye(warm.members)
        finally:
            warm.close()
        cluster.wait_connected(node, 0)


def connect(cluster: Cluster, crowd: Crowd, sessions: int) -> Storm:
    """New sessions, all at once, through HAProxy: hello, three selections, their snapshots."""
    publish_everything(cluster, crowd, all_topics(sessions))
    warm_up(cluster, crowd, sessions, [HOME])
    crowd.add(sessions)
    # A node that accepts too slowly is passed over, whatever the hint says; what the other one does is counted, too.
    return observe(cluster, crowd, NODES, "created", lambda: crowd.arrive(cluster.entry, expected="created", hint=HOME))


def reattach(cluster: Cluster, crowd: Crowd, sessions: int) -> Storm:
    """All sockets are cut, values change meanwhile, all clients come back to the node that keeps their buffers."""
    settle_in(cluster, crowd, sessions)
    crowd.cut()
    cluster.wait_connected(HOME, 0)
    publish_everything(cluster, crowd, shared_topics(sessions))
    return observe(cluster, crowd, [HOME], "reattached", lambda: crowd.arrive(cluster.entry, expected="reattached"))


def handoff(cluster: Cluster, crowd: Crowd, sessions: int) -> Storm:
    """All sockets are cut, values change meanwhile, all clients come to the other node, and the first one lives.

    They come some at a time, as in a drain: both nodes share a core here, which would be asked for too much at once.
    """
    settle_in(cluster, crowd, sessions)
    warm_up(cluster, crowd, sessions, [REFUGE])
    cluster.wait_linked()
    # As on any node that is not new, somebody follows the same partitions there already.
    keeper = Member(crowd.loop, crowd, "keeper", interest_of(0))
    crowd.arrive(cluster.direct(REFUGE), expected="created", members=[keeper])
    _warm_up_handoff(cluster, crowd, sessions)
    crowd.cut()
    cluster.wait_connected(HOME, 0)
    publish_everything(cluster, crowd, shared_topics(sessions))
    return observe(
        cluster,
        crowd,
        NODES,
        "handed_over",
        lambda: crowd.arrive(cluster.entry, expected="handed_over", hint=REFUGE, at_once=HANDED_OVER_AT_ONCE),
    )


def failover(cluster: Cluster, crowd: Crowd, sessions: int) -> Storm:
    """The node is killed, values change meanwhile, all clients come back and are served by the other one."""
    settle_in(cluster, crowd, sessions)
    warm_up(cluster, crowd, sessions, [REFUGE])
    cluster.kill(HOME)
    crowd.cut()
    publish_everything(cluster, crowd, shared_topics(sessions), node=REFUGE)
    # The hint still names the dead node, as that of a real client would.
    return observe(cluster, crowd, [REFUGE], "failed_over", lambda: crowd.arrive(cluster.entry, expected="failed_over"))


def _warm_up_handoff(cluster: Cluster, crowd: Crowd, sessions: int) -> None:
    """Let further sessions come to the first node, be handed over, and go."""
    with closing(Crowd()) as warm:
        warm.goals = crowd.goals
        warm.add(min(WARM_UP, sessions), prefix="warm-handoff")
        warm.arrive(cluster.direct(HOME), expected="created", at_once=PREPARING_AT_ONCE)
        warm.settle()
        warm.cut()
        cluster.wait_connected(HOME, sessions)
        warm.arrive(cluster.direct(REFUGE), expected="handed_over", at_once=HANDED_OVER_AT_ONCE)
        warm.settle()
        warm.bye(warm.members)
    cluster.wait_connected(REFUGE, 1)


def settle_in(cluster: Cluster, crowd: Crowd, sessions: int) -> None:
    """Bring sessions to a node, acknowledged and idle; not through HAProxy, which may send them elsewhere."""
    publish_everything(cluster, crowd, all_topics(sessions))
    warm_up(cluster, crowd, sessions, [HOME])
    crowd.add(sessions)
    crowd.arrive(cluster.direct(HOME), expected="created", at_once=PREPARING_AT_ONCE)
    crowd.settle()


def observe(cluster: Cluster, crowd: Crowd, nodes: Sequence[str], outcome: str, storm: Callable[[], Phase]) -> Storm:
    """Run a storm between two readings of the CPU clocks; the second is taken when acknowledgements have settled."""
    before = cluster.cpu(nodes)
    failure = ""
    try:
        storm()
        crowd.settle()
    except StormFailed as failed:
        failure = str(failed)
    after = cluster.cpu(nodes)
    phase = crowd.phase
    return Storm(
        sessions=phase.wanted,
        recovered=phase.outcomes[outcome],
        seconds=phase.seconds,
        waits=sorted(phase.waits),
        cpu={role: after[role] - before[role] for role in after},
        own_cpu=crowd.own_cpu,
        failure=failure,
    )


SCENARIOS: Final[Mapping[str, Callable[[Cluster, Crowd, int], Storm]]] = {
    "connect": connect,
    "reattach": reattach,
    "handoff": handoff,
    "failover": failover,
}
"""By the name of their case."""

LINKED: Final = frozenset({"handoff"})
"""Those whose nodes have to have links."""
