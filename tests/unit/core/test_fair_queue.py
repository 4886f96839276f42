"""A queue in which no key keeps another one waiting (P20)."""

from __future__ import annotations

import pytest

from gateway.core.pacing.fair_queue import FairQueue

pytestmark = pytest.mark.promise("P20")


def test_each_key_has_its_turn_before_any_has_its_second() -> None:
    queue: FairQueue[str] = FairQueue()
    for key, item in (("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1"), ("b", "b2")):
        queue.push(key, item)

    assert (len(queue), queue.keys) == (6, 3)
    assert [queue.pop() for _ in range(len(queue))] == ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert (len(queue), queue.keys) == (0, 0)


def test_who_comes_back_is_behind_all_other_keys() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push("a", "a1")
    queue.push("b", "b1")
    assert queue.pop() == "a1"
    queue.push("a", "a2")
    queue.push("c", "c1")

    assert [queue.pop() for _ in range(3)] == ["b1", "a2", "c1"]


def test_nobody_waits_in_an_empty_queue() -> None:
    with pytest.raises(StopIteration):
        FairQueue[str]().pop()
