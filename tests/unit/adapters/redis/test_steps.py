"""Publishes of one call, sorted into steps of the grid."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.adapters.redis import topic_steps as module
from gateway.adapters.redis.foreign import ForeignData
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.history import LogWriter
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.topics import RedisTopics
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.types import Epoch, NodeRef, RequestNumber, SessionId, TopicPath
from gateway.ports import Ownership, PublishCommand

OWNER = NodeRef.parse("n1:a")
ALICE = Ownership(SessionId("alice"), OWNER, Epoch(1))
BOB = Ownership(SessionId("bob"), OWNER, Epoch(1))


def command(
    request: int, topic: str = "a/x", *, ownership: Ownership = ALICE, settled: int = 0, value: bytes = b"1"
) -> PublishCommand:
    return PublishCommand(ownership, RequestNumber(request), RequestNumber(settled), TopicPath(topic), value)


def steps(*commands: PublishCommand, undivided: bool = True) -> list[list[list[int]]]:
    """Return the places of the commands in each partition of each step."""
    grid = cast(
        "GridConnection", SimpleNamespace(batcher=SimpleNamespace(undivided=undivided), generation=1, stream_length=1)
    )
    writer = LogWriter(grid, Keys("g"), history_bytes=0)
    topics = RedisTopics(
        grid=grid, keys=Keys("g"), foreign=ForeignData(MemoryMetrics(), MemoryEventLog()), depth=1, writer=writer
    )
    made: Sequence[Any] = topics._steps(topics._parts(commands))
    return [[part.places for part in step.parts] for step in made]


def test_publishes_of_a_session_in_a_partition_are_one_step() -> None:
    published = [command(number, f"a/{number}") for number in range(1, 6)]
    for undivided in (True, False):
        assert steps(*published, undivided=undivided) == [[[0, 1, 2, 3, 4]]]


def test_partitions_share_a_step_unless_they_are_in_slots_of_a_cluster() -> None:
    published = command(1, "a/x"), command(2, "b/x"), command(3, "a/y"), command(4, "b/y")
    assert steps(*published) == [[[0, 2], [1, 3]]]
    assert steps(*published, undivided=False) == [[[0, 2]], [[1, 3]]]


def test_sessions_do_not_overtake_each_other_in_a_partition() -> None:
    found = steps(command(1), command(1, ownership=BOB), command(2), command(3), command(2, ownership=BOB))
    assert found == [[[0]], [[1]], [[2, 3]], [[4]]]


def test_sessions_do_not_share_a_step() -> None:
    found = steps(
        command(1, "a/x"), command(1, "b/x", ownership=BOB), command(2, "b/x", ownership=BOB), command(2, "c/x")
    )
    assert found == [[[0]], [[1, 2]], [[3]]]


def test_what_is_settled_is_the_same_for_a_step() -> None:
    assert steps(command(1), command(2), command(3, settled=1), command(4, settled=1)) == [[[0, 1]], [[2, 3]]]
    assert steps(command(1, "a/x"), command(2, "b/x", settled=1)) == [[[0]], [[1]]]


def test_a_step_is_bounded_in_publishes_and_bytes() -> None:
    many = steps(*(command(number) for number in range(1, module.PUBLISH_COUNT + 3)))
    assert [[len(part) for part in step] for step in many] == [[module.PUBLISH_COUNT], [2]]
    half = b"1" * (module.PUBLISH_BYTES // 2)
    assert steps(*(command(number, value=half) for number in range(1, 6))) == [[[0, 1]], [[2, 3]], [[4]]]


def test_a_step_is_bounded_over_all_of_its_partitions() -> None:
    several = [command(number, f"{number % 3}/x") for number in range(1, module.PUBLISH_COUNT + 1)]
    assert len(steps(*several)) == 1
    assert [len(step) for step in steps(*several, command(module.PUBLISH_COUNT + 1, "3/x"))] == [3, 1]
    half = b"1" * (module.PUBLISH_BYTES // 2)
    assert steps(*(command(number, f"{number}/x", value=half) for number in range(1, 4))) == [[[0], [1]], [[2]]]


def test_topics_with_history_are_steps_of_their_own_in_their_place() -> None:
    """The script of a step without them has nothing to do with histories (L5)."""
    limits = HistoryLimits()
    published = [
        command(1, "a/1"),
        command(2, "a/2")._replace(history=limits),
        command(3, "a/3")._replace(history=limits),
        command(4, "b/1")._replace(history=limits),
        command(5, "a/1"),
    ]
    assert steps(*published) == [[[0]], [[1, 2], [3]], [[4]]]
    assert steps(*published, undivided=False) == [[[0]], [[1, 2]], [[3]], [[4]]]
