"""Failover with replay, beside failover with snapshots: members that say where they are, and the storm of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from benchmarks.storm.cluster import Cluster
from benchmarks.storm.crowd import Crowd, all_topics, interest_of, shared_topics
from benchmarks.storm.loop import Connection, Loop
from benchmarks.storm.member import Board, Interest, Member
from benchmarks.storm.scenarios import HOME, PREPARING_AT_ONCE, REFUGE, Storm, observe, publish_everything, warm_up

NEIGHBOURS: Final = 20
"""Sessions that live on the surviving node all the time: it follows the topics, as every node of a cluster does whose
clients are spread over all of them."""
_SUPPORTS: Final = ["replay"]


class ReplayedMember(Member):
    """A session that names its places in the streams when it resumes, and takes no hole for an answer (P13).

    It does so as protocol 10.6 says: a place begins with the notice that all values of a subscription have come, and
    moves with each live update of its partition.
    """

    __slots__ = ("_places",)

    def __init__(self, loop: Loop, board: Board, name: str, interest: Interest) -> None:
        """Describe a session; see ``Member``."""
        super().__init__(loop, board, name, interest)
        self._places: dict[str, str] = {}

    def awaited(self, expected: str) -> Sequence[str]:
        """Only what it has missed comes, whatever serves it."""
        return self.topics if expected == "created" else self.outdated

    def opened(self, connection: Connection) -> None:
        """Send the first packet; see ``Owner``."""
        first: dict[str, Any] = {"type": "hello", "principal": self.name, "client": "storm/1", "supports": _SUPPORTS}
        if self._token:
            self._attempt += 1
            first = {
                "type": "resume",
                "token": self._token,
                "attempt": self._attempt,
                "received": self._received,
                "oldest": self._sent + 1,
                "supports": _SUPPORTS,
                "positions": self._places,
            }
        connection.send(orjson.dumps(first))

    def _take(self, packet: dict[str, Any]) -> None:
        if packet.get("type") == "notice" and packet.get("code") == "snapshots_complete":
            self._places |= packet["positions"]
            self._owe()
            return
        super()._take(packet)

    def _resumed(self, packet: dict[str, Any]) -> None:
        super()._resumed(packet)
        if packet["outcome"] == "failed_over" and (packet.get("replayed") is not True or packet["lost"] != 0):
            self._fail(f"was not replayed: {packet.get('replayed')}, lost={packet['lost']}")

    def _update(self, packet: dict[str, Any]) -> None:
        topic = packet["topic"]
        before = self._held.get(topic, 0)
        super()._update(packet)
        if packet.get("snapshot"):
            return
        if self._held.get(topic) != before + 1:
            self._fail(f"{topic} went from number {before} to {self._held.get(topic)}")
        event = packet["event"]
        partition = event.partition("-")[0]
        if partition in self._places:
            self._places[partition] = event


def fail_over(cluster: Cluster, crowd: Crowd, sessions: int, *, missed: int, replay: bool) -> tuple[Storm, int]:
    """A node is killed, topics change meanwhile, and all of its clients come back to the other one at once.

    Args:
        cluster: with two nodes.
        crowd: with nobody yet.
        sessions: of the node that is killed.
        missed: updates of each shared topic while they are away; two of three topics of a session are shared.
        replay: whether sessions say where they were; else they get current values.

    Returns:
        What it cost, and how many bytes clients received.

    Raises:
        StormFailed: what comes before the storm went wrong.
    """
    everybody = NEIGHBOURS + sessions
    publish_everything(cluster, crowd, all_topics(everybody))
    warm_up(cluster, crowd, sessions, [HOME, REFUGE])
    neighbours = crowd.add(NEIGHBOURS, prefix="neighbour")
    crowd.arrive(cluster.direct(REFUGE), expected="created", members=neighbours)
    if replay:
        members: list[Member] = [
            ReplayedMember(crowd.loop, crowd, f"member-{number}", interest_of(number))
            for number in range(NEIGHBOURS, everybody)
        ]
        crowd.members += members
    else:
        members = crowd.add(sessions)
    crowd.arrive(cluster.direct(HOME), expected="created", members=members, at_once=PREPARING_AT_ONCE)
    crowd.settle()
    cluster.kill(HOME)
    crowd.cut(members)
    for _ in range(missed):
        publish_everything(cluster, crowd, shared_topics(everybody), node=REFUGE)
    crowd.settle()
    received = crowd.loop.bytes_in
    storm = observe(
        cluster,
        crowd,
        [REFUGE],
        "failed_over",
        lambda: crowd.arrive(cluster.entry, expected="failed_over", members=members),
    )
    return storm, crowd.loop.bytes_in - received
