"""How often Redis is asked for what clients missed that all come back: ``python -m benchmarks.storm.comebacks``.

The node of ten thousand sessions is killed. While they are away, each of many streams grows by more than a node keeps
at hand. Then all come back in the same moment and say where they were. What is counted are the reads of streams, by
Redis itself: one for each stretch that somebody missed, and not one for each session (P13, P20).

```text
stream:  ── held by all ── │ ── missed: changes of what they select ── │ ── 2,000 of what they do not ── │ ─▶ goes on
                                      to be read from Redis                  at hand at the node
```
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import click

from benchmarks.placement import Placement, bound_to
from benchmarks.storm.cluster import Cluster, running
from benchmarks.storm.crowd import Crowd, allow_descriptors
from benchmarks.storm.member import Interest, Member
from benchmarks.storm.publisher import Publisher
from benchmarks.storm.replay import ReplayedMember
from benchmarks.storm.scenarios import HOME, PREPARING_AT_ONCE, REFUGE, Storm, observe, publish_everything
from gateway.app.delivery.recent_entries import RECENT_ENTRIES
from gateway.core.topics.topics import topic_partition
from gateway.core.types import TopicPath

SESSIONS: Final = 10_000
STREAMS: Final = 32
"""Half of all there are. Each session misses something in two of them."""
TOPICS: Final = 10
"""Of each stream, that sessions select."""
MISSED: Final = 3
"""Updates of each of these."""
AT_HAND: Final = RECENT_ENTRIES
"""Updates that follow in each stream: as many as a node keeps, so that it has to read what lies before them."""
ON_THEIR_WAY: Final = 1_000
"""Sessions that come back together: whoever is served makes room for the next. All at once are for the limits that
[Storms](../../docs/explanation/storms.md) tells of; here it is counted what is read, however long it takes."""
READS: Final = ("xrange", "xrevrange", "xread")
"""Commands by which streams are read. A node follows its streams by XREAD, reads again by XRANGE what was missed, and
asks for the end of a stream by XREVRANGE."""

_SPARE_DESCRIPTORS: Final = 1_000
_TRADE_AT_ONCE: Final = 16
"""Updates that are on their way together while the storm lasts, where streams grow meanwhile."""
_DEPTH: Final = 1
"""Segments of a path that decide its partition, as by default."""
_SECONDS: Final = 500.0
"""For one storm, on a machine that is busy with other things."""
_SETTINGS: Final = {"limit-connections": "20000", "window-default": "900"}
"""By default a node takes ten thousand connections, and here are neighbours; and no window ends while it lasts. What is
counted depends on neither."""


@dataclass(frozen=True)
class Comebacks:
    """What a storm made Redis do.

    Attributes:
        storm: what it cost.
        streams: in which something was missed.
        calls: of each command of ``READS``, while it lasted.
        by_metric: reads of what was missed, as the node has counted them.
        grown: updates that came into the streams while it lasted.
    """

    storm: Storm
    streams: int
    calls: dict[str, int]
    by_metric: int
    grown: int


class TradingCrowd(Crowd):
    """A crowd beside which somebody goes on publishing.

    Attributes:
        publisher: who does; None while nobody does.
        grown: updates that were published.
    """

    def __init__(self) -> None:
        """Begin with nobody."""
        super().__init__()
        self.publisher: Publisher | None = None
        self.patience = _SECONDS
        self.grown = 0
        self._fillers = itertools.cycle(each[-1] for each in streams())

    def acknowledge_due(self) -> None:
        """Send the acknowledgements whose time has come, and publish what is next."""
        super().acknowledge_due()
        if self.publisher is not None and self.publisher.done:
            self.publisher.publish(_next(self, list(itertools.islice(self._fillers, _TRADE_AT_ONCE))))
            self.grown += _TRADE_AT_ONCE


def streams() -> Sequence[Sequence[str]]:
    """List the topics of each stream: those that sessions select, and behind them one that nobody does."""
    found: dict[int, list[str]] = {}
    for number in itertools.count():
        root = f"sector-{number}"
        topics = [f"{root}/price-{each}" for each in range(TOPICS)]
        found.setdefault(topic_partition(TopicPath(topics[0]), _DEPTH), [*topics, f"{root}/other"])
        if len(found) == STREAMS:
            return list(found.values())
    raise AssertionError("numbers do not end")


def interest_of(number: int) -> Interest:
    """Tell what the member with a number selects: a topic by its name, and one by a wildcard in another stream."""
    every = streams()
    first = every[number % STREAMS][number % TOPICS]
    second = every[(number + 1 + number // STREAMS % (STREAMS - 1)) % STREAMS][number // TOPICS % TOPICS]
    return Interest((first, second.replace("/", "/**/")), (first, second))


def come_back(
    cluster: Cluster, crowd: TradingCrowd, sessions: int, *, followed: bool, grows: bool, at_once: int
) -> Comebacks:
    """Kill a node, have its clients miss something, and let all of them come to the other one at once.

    Args:
        cluster: of two nodes.
        crowd: with nobody yet.
        sessions: of the node that is killed.
        followed: whether the other node follows the streams all the time; else it has yet to read them.
        grows: whether the streams go on growing while sessions come back.
        at_once: how many of them are on their way together.

    Returns:
        What it made Redis do.

    Raises:
        StormFailed: what comes before the storm went wrong.
    """
    every = streams()
    selected = [topic for topics in every for topic in topics[:-1]]
    fillers = [topics[-1] for topics in every]
    publish_everything(cluster, crowd, [*selected, *fillers])
    if followed:
        neighbour = Member(
            crowd.loop, crowd, "neighbour", Interest(tuple(topics[0] for topics in every), tuple(t[0] for t in every))
        )
        crowd.arrive(cluster.direct(REFUGE), expected="created", members=[neighbour])
    members: list[Member] = [
        ReplayedMember(crowd.loop, crowd, f"member-{number}", interest_of(number)) for number in range(sessions)
    ]
    crowd.arrive(cluster.direct(HOME), expected="created", members=members, at_once=PREPARING_AT_ONCE)
    crowd.settle()
    cluster.kill(HOME)
    crowd.cut(members)
    publisher = Publisher(crowd.loop, "away")
    publisher.connect(cluster.direct(REFUGE))
    for topic in (*selected * MISSED, *fillers * AT_HAND):
        publisher.publish(_next(crowd, [topic]))
    publisher.publish_all(())
    crowd.settle()
    if grows:
        crowd.publisher = publisher
    before, read = cluster.commands(), _by_metric(cluster)
    storm = observe(
        cluster,
        crowd,
        [REFUGE],
        "failed_over",
        lambda: crowd.arrive(cluster.direct(REFUGE), expected="failed_over", members=members, at_once=at_once),
    )
    after = cluster.commands()
    return Comebacks(
        storm=storm,
        streams=len(every),
        calls={name: after.get(name, 0) - before.get(name, 0) for name in READS},
        by_metric=_by_metric(cluster) - read,
        grown=crowd.grown,
    )


@contextmanager
def storm_of(sessions: int, *, followed: bool, grows: bool, at_once: int = ON_THEIR_WAY) -> Iterator[Comebacks]:
    """Run nodes and a storm, and yield what came of it while the nodes still run."""
    placement = Placement.of_this_machine()
    allow_descriptors(sessions + _SPARE_DESCRIPTORS)
    with running(placement, balancer=False, settings=_SETTINGS) as cluster, bound_to(placement.others):
        crowd = TradingCrowd()
        try:
            yield come_back(cluster, crowd, sessions, followed=followed, grows=grows, at_once=at_once)
        finally:
            crowd.close()


def _next(crowd: Crowd, topics: Sequence[str]) -> list[tuple[str, int]]:
    found = []
    for topic in topics:
        crowd.goals[topic] = crowd.goals.get(topic, 0) + 1
        found.append((topic, crowd.goals[topic]))
    return found


def _by_metric(cluster: Cluster) -> int:
    return int(cluster.metric(REFUGE, "gateway_replay_reads_total"))


@click.command()
@click.option("--sessions", default=SESSIONS, show_default=True, help="That come back.")
def main(sessions: int) -> None:
    """Let three storms happen, and print what each made Redis do.

    Raises:
        SystemExit: with 1 if a check failed.
    """
    failed = False
    for name, followed, grows in (
        ("the streams are followed", True, False),
        ("nobody follows them", False, False),
        ("they go on growing", True, True),
    ):
        with storm_of(sessions, followed=followed, grows=grows) as found:
            storm = found.storm
            calls = ", ".join(f"{count} {command.upper()}" for command, count in found.calls.items())
            print(
                f"{name}: {storm.recovered} of {storm.sessions} replayed in {storm.seconds:.1f} s; "
                f"{found.streams} streams, {calls}; {found.by_metric} reads by the node's metric; "
                f"{found.grown} updates meanwhile; {storm.failure or 'nothing was missed or doubled'}",
                flush=True,
            )
            failed = failed or bool(storm.failure)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
