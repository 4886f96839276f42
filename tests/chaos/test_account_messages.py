"""What the account finds in messages of queues: histories with and without each violation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.account.forgotten import Forgotten
from tests.chaos.account.messages import Answer, Given, Messages, QueueLook, Way
from tests.chaos.histories import SECOND, promises

QUEUE = "c2/work"
LOST = Forgotten(4.0, 30.0)
"""The grid forgot everything between what happens here and its end."""


def settle(account: Messages, at: float, session: str, way: Way, answer: Answer = Answer.DONE) -> None:
    """Somebody settles the message, and is answered half a second later."""
    settling = account.settle(at, 1, session, way)
    settling.answer = answer
    settling.answered = at + 0.5


def given(account: Messages, at: float, session: str, *, marked: bool = False, message: int = 7) -> None:
    """An application is given the message."""
    assert account.given(at, QUEUE, 1, Given(at, session, message, marked))


def story(
    *steps: Callable[[Messages], None], look: QueueLook | None = None, receipt: bool = True, expires: bool = False
) -> Messages:
    """One message was sent in the first second, and then this happened; at the end the queue is empty."""
    account = Messages()
    assert account.ask(1.0, QUEUE, "sender", expires=expires) == 1
    if receipt:
        account.sent(1.5, 1, 7)
    for step in steps:
        step(account)
    account.look(look or QueueLook(40.0, QUEUE, {}))
    return account


def accepted(at: float, session: str, answer: Answer = Answer.DONE) -> Callable[[Messages], None]:
    return lambda account: settle(account, at, session, Way.ACCEPT, answer)


def rejected(at: float, session: str) -> Callable[[Messages], None]:
    return lambda account: settle(account, at, session, Way.REJECT)


def released(at: float, session: str) -> Callable[[Messages], None]:
    return lambda account: settle(account, at, session, Way.RELEASE)


def got(at: float, session: str, *, marked: bool = False, message: int = 7) -> Callable[[Messages], None]:
    return lambda account: given(account, at, session, marked=marked, message=message)


def left(at: float, session: str) -> Callable[[Messages], None]:
    return lambda account: account.left(at, session)


def dead(reason: str) -> QueueLook:
    return QueueLook(40.0, QUEUE, {7: 1}, dead={7: reason})


def test_what_is_as_it_should_be() -> None:
    for account in (
        story(got(2.0, "a"), accepted(3.0, "a")),
        story(got(2.0, "a"), left(3.0, "a"), got(4.0, "b", marked=True), accepted(5.0, "b")),
        story(got(2.0, "a"), released(3.0, "a"), got(4.0, "b", marked=True), accepted(5.0, "b")),
        story(got(2.0, "a"), released(3.0, "a"), got(4.0, "a", marked=True), accepted(5.0, "a")),
        story(got(2.0, "a"), accepted(3.0, "a", Answer.NONE)),
        story(got(2.0, "a"), rejected(3.0, "a"), look=dead("rejected")),
        story(look=dead("expired"), expires=True),
        story(receipt=False),
        story(look=QueueLook(40.0, QUEUE, {7: 1}, ready=[7])),
    ):
        assert account.judge([], {}) == []
        assert account.violations == []


@pytest.mark.parametrize(
    ("account", "expected"),
    [
        pytest.param(story(got(2.0, "a")), "accepted by nobody", id="gone"),
        pytest.param(
            story(got(2.0, "a"), accepted(3.0, "a"), left(4.0, "a"), got(5.0, "b", marked=True)),
            "after session a had accepted it",
            id="given after it was accepted",
        ),
        pytest.param(
            story(got(2.0, "a"), left(3.0, "a"), got(4.0, "b"), accepted(5.0, "b")), "twice unmarked", id="not marked"
        ),
        pytest.param(
            story(got(2.0, "a"), got(4.0, "b", marked=True), accepted(5.0, "b")), "held it since", id="held by another"
        ),
        pytest.param(
            story(got(2.0, "a"), got(3.0, "a", marked=True), accepted(5.0, "a")), "lost nothing", id="redelivered"
        ),
        pytest.param(
            story(got(2.0, "a"), accepted(3.0, "a", Answer.NOT_HELD), look=QueueLook(40.0, QUEUE, {7: 1}, ready=[7])),
            "does not hold it",
            id="refused to its holder",
        ),
        pytest.param(
            story(got(2.0, "a"), accepted(3.0, "a"), look=QueueLook(40.0, QUEUE, {7: 1}, ready=[7])),
            "and is there",
            id="there again",
        ),
        pytest.param(story(got(2.0, "a"), rejected(3.0, "a")), "no dead letter", id="rejected and gone"),
        pytest.param(story(got(2.0, "a"), look=dead("rejected")), "nothing of that happened", id="dead for no reason"),
        pytest.param(story(look=dead("expired")), "nothing of that happened", id="expired without an end"),
        pytest.param(
            story(look=QueueLook(40.0, QUEUE, {7: 1, 8: 1}, ready=[7, 8])),
            "sent once, and is there as",
            id="sent twice",
        ),
        pytest.param(
            story(look=QueueLook(40.0, QUEUE, {7: 1, 8: 2}, ready=[7, 8])), "which nobody sent", id="sent by nobody"
        ),
    ],
)
def test_each_violation_is_found(account: Messages, expected: str) -> None:
    account.judge([], {})
    assert [expected in str(each) for each in account.violations] == [True], account.violations


def test_one_that_is_accepted_twice() -> None:
    account = story(got(2.0, "a"), accepted(3.0, "a"), left(3.1, "a"), got(3.2, "b", marked=True), accepted(4.0, "b"))
    account.judge([], {})
    assert "was accepted twice" in str(account.violations)


def test_what_the_grid_forgot_is_excused_and_has_to_be_declared() -> None:
    account = story(got(2.0, "a"))
    (lost,) = account.judge([LOST], {})
    assert (lost.topic, lost.value, lost.generation, lost.session) == (QUEUE, 1, 1, "sender")
    assert account.violations == []
    again = story(got(2.0, "a"), accepted(3.0, "a"), got(35.0, "b"), accepted(36.0, "b"))
    again.judge([LOST], {})
    assert again.violations == []


def test_what_is_younger_than_the_copy_alone_is_excused() -> None:
    account = story(got(2.0, "a"))
    account.judge([Forgotten(10.0, 30.0, kept=9.0)], {})
    assert promises(account.violations) == ["P15"]


@pytest.mark.parametrize(
    ("kept", "expected"), [pytest.param(8.0, [], id="forgotten"), pytest.param(16.0, ["P15"], id="kept")]
)
def test_one_whose_acceptance_alone_was_forgotten_is_held_again(kept: float, expected: list[str]) -> None:
    account = story(got(2.0, "a"), accepted(12.0, "a"), got(20.0, "a", marked=True), accepted(21.0, "a"))
    account.judge([Forgotten(18.0, 19.0, kept=kept)], {})
    assert sorted({*promises(account.violations)}) == expected, account.violations


def test_one_that_waits_with_its_session_does_not_come_again_when_the_grid_forgets() -> None:
    account = story(got(2.0, "a"), got(20.0, "a", marked=True), accepted(21.0, "a"))
    account.judge([Forgotten(18.0, 19.0, kept=16.0)], {})
    assert promises(account.violations) == ["P15"]


def test_a_failover_brings_again_what_is_held() -> None:
    account = story(got(2.0, "a"), got(6.0, "a", marked=True), accepted(8.0, "a"))
    account.judge([], {"a": [5.0]})
    assert account.violations == []


def test_the_generation_of_what_was_lost_is_that_of_its_id() -> None:
    account = Messages()
    account.ask(1.0, QUEUE, "sender")
    account.sent(1.5, 1, SECOND + 3)
    account.look(QueueLook(40.0, QUEUE, {}))
    assert [each.generation for each in account.judge([LOST], {})] == [2]


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        pytest.param(QueueLook(2.0, QUEUE, {7: 1}, ready=[7], dead={7: "expired"}), "two places", id="twice"),
        pytest.param(QueueLook(2.0, QUEUE, {7: 1}), "no place", id="nowhere"),
        pytest.param(QueueLook(2.0, QUEUE, {}, ready=[7]), "do not exist", id="without a message"),
        pytest.param(QueueLook(2.0, QUEUE, {7: 1}, held=[("a", 7)]), "holds 1 messages", id="held by a stranger"),
        pytest.param(QueueLook(2.0, QUEUE, {}, counts={"a": 2}), "holds 0 messages", id="a wrong count"),
    ],
)
def test_places_are_judged_whenever_somebody_looks(look: QueueLook, expected: str) -> None:
    account = Messages()
    account.ask(1.0, QUEUE, "sender")
    account.look(look)
    assert [expected in str(each) for each in account.violations] == [True]


def test_what_comes_to_a_consumer_that_has_left_means_nothing() -> None:
    account = story(got(2.0, "a"), left(3.0, "a"), got(4.0, "b", marked=True), accepted(5.0, "b"))
    assert not account.given(4.5, QUEUE, 1, Given(4.5, "a", 7, marked=False))
    account.judge([], {})
    assert account.violations == []


def test_a_message_that_nobody_sent() -> None:
    account = Messages()
    assert not account.given(1.0, QUEUE, 9, Given(1.0, "a", 7, marked=False))
    assert promises(account.violations) == ["P15"]


def test_what_is_left_is_told_with_its_place() -> None:
    look = QueueLook(1.0, "jobs", {1: 10, 2: 20, 3: 30, 4: 40}, ready=[3], held=[("a", 1)], dead={4: "rejected"})
    assert (look.unsettled, look.left) == (3, "3, 1 held by a; 3 is ready")
