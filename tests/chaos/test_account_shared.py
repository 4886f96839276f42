"""What the account finds in what a shared subscription handed out, event by event."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from tests.chaos.account.forgotten import Forgotten
from tests.chaos.account.messages import Answer, Given, Way
from tests.chaos.account.publishes import Publishes
from tests.chaos.account.shared import SharedReading

pytestmark = pytest.mark.promise("P14", "P15")

COUNT = 3
"""Events that are published, as 1, 2 and 3."""


def published() -> Publishes:
    publishes = Publishes()
    for number in range(1, COUNT + 1):
        publishes.ask(number / 10, "c0/a", "s")
        publishes.acknowledge(number / 10, "c0/a", number, number, f"5-1-{number}")
    return publishes


class Steps:
    """Sessions share a subscription, a second for each step, from the tenth on."""

    def __init__(self) -> None:
        self.reading = SharedReading("shared", "c0/**")
        self.now = 10.0

    def hand(
        self,
        value: int,
        session: str = "a",
        *,
        marked: bool = False,
        gap: bool = False,
        message: int = 0,
        event: int = 0,
    ) -> None:
        self.now += 1
        given = Given(self.now, session, message or value, marked)
        self.reading.given("c0/a", value, f"5-1-{event or value}", given, gap=gap)

    def accept(self, value: int, session: str = "a", *, answered: bool = True) -> None:
        self.now += 1
        number = self.reading._numbers["c0/a", value]
        settling = self.reading.messages.settle(self.now, number, session, Way.ACCEPT)
        if answered:
            settling.answer, settling.answered = Answer.DONE, self.now + 0.5

    def all_done(self, *besides: int) -> None:
        """Hand out and accept the others."""
        for value in range(1, COUNT + 1):
            if value not in besides:
                self.hand(value)
                self.accept(value)

    def found(self, *forgotten: Forgotten, restarts: dict[str, list[float]] | None = None) -> list[str]:
        return [each.what for each in self.reading.judge(published(), forgotten, restarts or {})]


def test_each_event_once_is_as_it_should_be() -> None:
    steps = Steps()
    steps.all_done()
    assert steps.found() == []
    assert steps.reading.behind({"c0/a": (COUNT, COUNT)}, published(), []) == []


def test_what_a_lost_session_held_comes_again_and_is_marked() -> None:
    steps = Steps()
    steps.hand(1)
    steps.reading.messages.left(steps.now, "a")
    steps.hand(1, "b", marked=True)
    steps.accept(1, "b")
    for value in (2, 3):
        steps.hand(value, "b")
    assert steps.found() == []


def never_handed_out(steps: Steps) -> None:
    steps.all_done(2)


def handed_out_behind_its_acceptance(steps: Steps) -> None:
    steps.all_done()
    steps.reading.messages.left(steps.now, "a")
    steps.hand(2, "b", marked=True)


def held_by_two(steps: Steps) -> None:
    steps.all_done(2)
    steps.hand(2, "a")
    steps.hand(2, "b", marked=True)


def twice_unmarked(steps: Steps) -> None:
    steps.all_done(2)
    steps.hand(2, "a")
    steps.reading.messages.left(steps.now, "a")
    steps.hand(2, "b")


def two_messages_of_one_event(steps: Steps) -> None:
    steps.all_done(2)
    steps.hand(2, "a")
    steps.reading.messages.left(steps.now, "a")
    steps.hand(2, "b", marked=True, message=9)


def another_place(steps: Steps) -> None:
    steps.all_done(2)
    steps.hand(2, event=7)


def a_gap(steps: Steps) -> None:
    steps.all_done(3)
    steps.hand(3, gap=True)


WRONG: list[tuple[Callable[[Steps], None], str]] = [
    (never_handed_out, "1 events were handed to nobody"),
    (handed_out_behind_its_acceptance, "after session a had accepted it"),
    (held_by_two, "while session a held it"),
    (twice_unmarked, "was given twice unmarked"),
    (two_messages_of_one_event, "was sent once, and is there as [2, 9]"),
    (another_place, "its publisher was told of (1, 2)"),
    (a_gap, "a gap is told before"),
]


@pytest.mark.parametrize(("happens", "what"), WRONG, ids=lambda each: getattr(each, "__name__", ""))
def test_what_breaks_a_promise_is_found(happens: Callable[[Steps], None], what: str) -> None:
    steps = Steps()
    happens(steps)
    found = steps.found()
    assert any(what in each for each in found), found


@pytest.mark.parametrize("happens", [each for each, _ in WRONG], ids=lambda each: each.__name__)
def test_a_grid_that_forgot_all_since_before_explains_it(happens: Callable[[Steps], None]) -> None:
    steps = Steps()
    happens(steps)
    assert steps.found(Forgotten(began=0.0, ended=steps.now + 1)) == []


def test_what_nobody_published_is_found_whatever_was_forgotten() -> None:
    steps = Steps()
    steps.all_done()
    steps.hand(8)
    (what,) = steps.found(Forgotten(began=0.0, ended=inf))
    assert "c0/a=8 was handed out, which nobody published" in what


def test_somebody_is_behind_until_the_last_event_was_handed_out() -> None:
    steps = Steps()
    steps.hand(1)
    steps.hand(2, "b")
    assert steps.reading.behind({"c0/a": (COUNT, COUNT)}, published(), []) == ["c0/a was read up to 2 of 3"]
