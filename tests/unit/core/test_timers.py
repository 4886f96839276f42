from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.core.pacing.timers import MIN_HEAP_SLACK, Deadlines


def test_without_deadlines_there_is_nothing_to_wait_for() -> None:
    deadlines: Deadlines[str] = Deadlines()
    assert deadlines.next() is None
    assert deadlines.due(1e9) == []
    assert len(deadlines) == 0


def test_deadlines_come_in_order() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, deadline in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
        deadlines.schedule(key, deadline)
    assert deadlines.next() == 1.0
    assert deadlines.due(0.9) == []
    assert deadlines.due(2.0) == ["a", "b"]
    assert deadlines.next() == 3.0
    assert "c" in deadlines
    assert "a" not in deadlines


def test_of_many_that_have_come_some_can_be_taken_out() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for key in range(5):
        deadlines.schedule(key, float(key))
    assert deadlines.due(3.0, most=3) == [0, 1, 2]
    assert deadlines.next() == 3.0
    assert deadlines.due(3.0, most=3) == [3]
    assert deadlines.due(3.0, most=3) == []
    assert len(deadlines) == 1


def test_a_key_has_one_deadline() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for deadline in (5.0, 9.0, 7.0, 2.0, 6.0):
        deadlines.schedule("a", deadline)
        assert len(deadlines) == 1
        assert deadlines.next() == deadline
    assert deadlines.due(5.9) == []
    assert deadlines.due(6.0) == ["a"]
    assert deadlines.due(100.0) == []


def test_only_what_comes_nearer_can_move_the_next_one() -> None:
    deadlines: Deadlines[str] = Deadlines()
    assert deadlines.schedule("a", 5.0)
    assert not deadlines.schedule("a", 5.0)
    assert not deadlines.schedule("a", 9.0)
    assert not deadlines.schedule("a", 7.0), "its entry is at 5 still"
    assert deadlines.next() == 7.0
    assert deadlines.schedule("a", 6.0)
    assert deadlines.next() == 6.0


def test_a_cancelled_deadline_does_not_come() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.schedule("a", 1.0)
    deadlines.schedule("b", 2.0)
    deadlines.cancel("a")
    deadlines.cancel("stranger")
    assert deadlines.next() == 2.0
    deadlines.schedule("a", 3.0)
    assert deadlines.due(9.0) == ["b", "a"]


def test_keys_are_never_compared() -> None:
    deadlines: Deadlines[object] = Deadlines()
    keys = [object() for _ in range(10)]
    for key in keys:
        deadlines.schedule(key, 1.0)
    assert deadlines.due(1.0) == keys


def test_a_deadline_that_moves_to_later_costs_no_entry() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for time in range(1000):
        for key in range(10):
            deadlines.schedule(key, float(time))
    assert len(deadlines._heap) == 10
    assert deadlines.next() == 999.0
    assert len(deadlines._heap) == 10


def test_dead_entries_are_swept() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for time in range(1000, 0, -1):
        for key in range(10):
            deadlines.schedule(key, float(time))
        assert len(deadlines._heap) <= 2 * len(deadlines) + MIN_HEAP_SLACK
    for key in range(10):
        deadlines.cancel(key)
    assert len(deadlines._heap) <= MIN_HEAP_SLACK
    assert deadlines.next() is None


class Life(RuleBasedStateMachine):
    """Deadlines against a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.deadlines: Deadlines[int] = Deadlines()
        self.model: dict[int, float] = {}

    @rule(key=st.integers(0, 5), deadline=st.integers(0, 20))
    def schedule(self, key: int, deadline: int) -> None:
        self.deadlines.schedule(key, float(deadline))
        self.model[key] = float(deadline)

    @rule(key=st.integers(0, 5))
    def cancel(self, key: int) -> None:
        self.deadlines.cancel(key)
        self.model.pop(key, None)

    @rule(now=st.integers(0, 20))
    def due(self, now: int) -> None:
        keys = self.deadlines.due(float(now))
        assert sorted(keys) == sorted(key for key, deadline in self.model.items() if deadline <= now)
        times = [self.model.pop(key) for key in keys]
        assert times == sorted(times)

    @invariant()
    def agrees(self) -> None:
        assert self.deadlines.next() == min(self.model.values(), default=None)
        assert len(self.deadlines) == len(self.model)
        assert all(key in self.deadlines for key in self.model)
        assert len(self.deadlines._heap) <= 2 * len(self.model) + MIN_HEAP_SLACK


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
