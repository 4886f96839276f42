"""What load tests find in requests and their answers."""

from __future__ import annotations

from typing import Any, Final

import orjson
import pytest

from gateway.core.client.errors import AnswerLost, HandlerFailed, HandlerLost, NoHandler, RequestTimedOut
from gateway.core.wire.exchange_packets import Question
from loadtests.payload import Sample, encode
from loadtests.request_integrity import GRACE, RequestWatch
from loadtests.tally import Tally

DUE: Final = 1000.0


def sample(number: int) -> Sample:
    return Sample("s", number, DUE)


def value(number: int) -> Any:
    return orjson.loads(encode(sample(number)))


def question(number: int, **changes: Any) -> Question:
    return Question(
        question=f"q{number}", path="p", timeout=1.0, principal="a", session="b", value=value(number) | changes
    )


@pytest.fixture
def found() -> list[str]:
    return []


@pytest.fixture
def watch(found: list[str]) -> RequestWatch:
    return RequestWatch(Tally(), found.append)


def test_what_is_handled_and_answered_once_is_right(watch: RequestWatch, found: list[str]) -> None:
    for number in range(1, 4):
        watch.asked(sample(number), 0.0, 5.0)
        watch.given(question(number))
        watch.answered(sample(number), value(number))
    watch.look(1e9)
    assert found == []


def test_a_request_that_is_handled_twice_is_found(watch: RequestWatch, found: list[str]) -> None:
    watch.given(question(1))
    watch.given(question(1))
    assert [each.partition("given")[2] for each in found] == [" to a handler twice"]


def test_a_damaged_request_and_the_answer_to_another_one_are_found(watch: RequestWatch, found: list[str]) -> None:
    watch.given(question(1, filler="?"))
    watch.answered(sample(1), value(2))
    watch.answered(sample(1), None)
    assert len(found) == 3


def test_a_request_without_an_end_is_found_once_its_time_is_over(watch: RequestWatch, found: list[str]) -> None:
    watch.asked(sample(1), 0.0, 5.0)
    watch.asked(sample(2), 0.0, 5.0)
    watch.failed(sample(2), NoHandler("nobody"))
    watch.look(5.0 + GRACE)
    assert found == []
    watch.look(5.1 + GRACE)
    watch.look(1e9)
    assert len(found) == 1


def test_what_ended_with_its_session_is_not_missed(watch: RequestWatch, found: list[str]) -> None:
    watch.asked(sample(1), 0.0, 5.0)
    watch.forget("s")
    watch.look(1e9)
    assert found == []


@pytest.mark.parametrize(
    ("error", "lies"),
    [
        (NoHandler("nobody"), True),
        (HandlerLost("gone", uncertain=False), True),
        (HandlerLost("gone", uncertain=True), False),
        (AnswerLost("gone", uncertain=True), False),
        (RequestTimedOut("late", sent=False), True),
        (RequestTimedOut("late", sent=True), False),
        (HandlerFailed("no"), False),
    ],
)
def test_an_error_that_says_that_nothing_was_executed_is_held_to_it(
    watch: RequestWatch, found: list[str], error: Exception, lies: bool
) -> None:
    watch.given(question(1))
    watch.failed(sample(1), error)
    assert bool(found) == lies
