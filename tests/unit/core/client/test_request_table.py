"""The table of requests, with time and replies by hand."""

from __future__ import annotations

import pytest

from gateway.core.client.errors import Forbidden
from gateway.core.client.request_table import (
    RETRY_INITIAL,
    RETRY_MAXIMUM,
    UNNUMBERED,
    Answered,
    ClientAsk,
    PendingRequest,
    RequestTable,
)
from gateway.core.types import RequestNumber
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.packets import Publish, Reply


def ask(value: int) -> Publish:
    return Publish(UNNUMBERED, "a", str(value).encode())


class Table:
    """A table, the calls in it, and what it sent."""

    def __init__(self, limit: int = 10) -> None:
        self.table = RequestTable(limit)
        self.table.resume(limit=limit, restarted=False, now=0.0)
        self.now = 0.0

    def call(self, *values: int) -> list[PendingRequest]:
        return [self.table.add(ask(value), f"call {value}") for value in values]

    def sent(self) -> list[tuple[int, int]]:
        """Return the number and value of each request that is sent now."""
        return [(each.request, int(_value(each))) for each in self.table.ready(self.now)]

    def accept(self, number: int) -> Answered | None:
        return self.table.answer(Reply(request=RequestNumber(number)), now=self.now, random=0.0)

    def refuse(
        self, number: int, code: ErrorCode = ErrorCode.GRID_UNAVAILABLE, retry_after: float | None = None
    ) -> Answered | None:
        reply = Reply(request=RequestNumber(number), error=code, message="no", retry_after=retry_after)
        return self.table.answer(reply, now=self.now, random=0.5)


def _value(each: ClientAsk) -> bytes:
    assert isinstance(each, Publish)
    return each.value


def test_requests_are_numbered_when_they_are_sent() -> None:
    table = Table(limit=2)
    table.call(10, 11, 12)

    assert table.sent() == [(1, 10), (2, 11)]
    assert table.sent() == []
    assert (table.table.unanswered, table.table.waiting) == (2, 1)
    answered = table.accept(2)
    assert answered is not None
    assert (answered.pending.call, answered.pending.sent, answered.error) == ("call 11", True, None)
    assert table.sent() == [(3, 12)]


def test_a_refusal_for_good_reaches_the_caller() -> None:
    table = Table()
    table.call(10)
    table.sent()

    answered = table.refuse(1, ErrorCode.FORBIDDEN)
    assert answered is not None
    assert (answered.pending.call, type(answered.error), str(answered.error)) == ("call 10", Forbidden, "no")


def test_an_answer_to_nothing_is_ignored() -> None:
    assert Table().accept(7) is None


def test_a_refused_request_is_sent_again_under_a_new_number_after_a_pause() -> None:
    table = Table()
    table.call(10)
    table.sent()
    assert table.refuse(1) is None

    assert table.table.next_deadline() == pytest.approx(1.5 * RETRY_INITIAL)
    assert table.sent() == []
    table.now = 1.5 * RETRY_INITIAL
    assert table.sent() == [(2, 10)]
    assert table.table.next_deadline() is None, "nothing waits"


def test_the_pause_grows_with_refusals_in_a_row_and_not_with_a_crowd() -> None:
    table = Table()
    table.call(*range(8))
    table.sent()
    for number in range(1, 9):
        table.refuse(number)
    assert table.table.next_deadline() == pytest.approx(1.5 * RETRY_INITIAL)

    number = 8
    pauses = []
    for _ in range(10):
        deadline = table.table.next_deadline()
        assert deadline is not None
        pauses.append(deadline - table.now)
        table.now = deadline
        number += 1
        assert table.sent() == [(number, 0)], "one request probes"
        table.refuse(number)

    assert pauses == pytest.approx(sorted(pauses))
    assert pauses[-1] == pytest.approx(1.5 * RETRY_MAXIMUM)


def test_while_one_request_probes_no_time_brings_the_others_on() -> None:
    table = Table()
    table.call(10, 11)
    table.sent()
    table.refuse(1)
    assert table.table.next_deadline() is None, "an answer is on its way"
    table.refuse(2)
    table.now = 100.0
    assert table.sent() == [(3, 10)]

    assert table.table.next_deadline() is None, "a deadline in the past would be called for over and over"


def test_the_nodes_advice_goes_before_ours() -> None:
    table = Table()
    table.call(10)
    table.sent()
    table.refuse(1, retry_after=2.0)

    assert table.table.next_deadline() == pytest.approx(3.0)


def test_an_advice_of_nothing_does_not_make_the_client_spin() -> None:
    table = Table()
    table.call(10)
    table.sent()
    table.refuse(1, retry_after=0.0)

    assert table.table.next_deadline() == pytest.approx(1.5 * RETRY_INITIAL)


def test_later_advice_of_a_crowd_is_respected() -> None:
    table = Table()
    table.call(10, 11)
    table.sent()
    table.refuse(1, retry_after=1.0)
    table.refuse(2, retry_after=9.0)

    assert table.table.next_deadline() == pytest.approx(9.0)


def test_refused_requests_go_back_to_their_place_and_new_calls_wait_behind_them() -> None:
    table = Table()
    table.call(10, 11, 12)
    table.sent()
    table.refuse(3)
    table.refuse(2)
    table.accept(1)
    table.refuse(99)
    table.call(13)
    table.now = 100.0

    assert table.sent() == [(4, 11), (5, 12), (6, 13)], "the node has accepted one since"


def test_an_accepted_probe_opens_the_gate() -> None:
    table = Table()
    table.call(10, 11, 12)
    table.sent()
    for number in (1, 2, 3):
        table.refuse(number)
    table.now = 100.0
    assert table.sent() == [(4, 10)]
    table.accept(4)

    assert table.sent() == [(5, 11), (6, 12)]


def test_what_nobody_waits_for_any_more_is_not_sent() -> None:
    table = Table(limit=1)
    first, second, _ = table.call(10, 11, 12)
    table.sent()
    first.withdrawn = second.withdrawn = True

    assert table.refuse(1) is None, "neither is it sent again"
    assert table.table.waiting == 2
    table.now = 100.0
    assert table.sent() == [(2, 12)]


def test_a_frozen_table_sends_nothing() -> None:
    table = Table()
    table.table.freeze()
    table.call(10)

    assert table.sent() == []
    table.table.resume(limit=10, restarted=False, now=0.0)
    assert table.sent() == [(1, 10)]


def test_after_a_reattach_nothing_is_asked_again() -> None:
    table = Table()
    table.call(10)
    table.sent()
    table.table.freeze()
    table.table.resume(limit=10, restarted=False, now=0.0)

    assert table.sent() == []
    assert [each.request for each in table.table.unanswered_asks()] == [1]


def test_after_a_failover_the_unanswered_comes_first_with_its_old_numbers() -> None:
    table = Table()
    table.call(10, 11, 12)
    table.sent()
    table.accept(2)
    table.table.freeze()
    table.call(13)
    table.table.resume(limit=10, restarted=True, now=0.0)
    asks = table.table.ready(0.0)

    assert [(each.request, _value(each), each.resubmitted) for each in asks] == [
        (1, b"10", True),
        (3, b"12", True),
        (4, b"13", False),
    ]


def test_a_failover_to_a_node_that_allows_less_keeps_to_its_limit() -> None:
    table = Table()
    table.call(10, 11, 12)
    table.sent()
    table.table.resume(limit=2, restarted=True, now=0.0)
    table.call(13)

    assert table.sent() == [(1, 10), (2, 11)]
    table.accept(1)
    assert table.sent() == [(3, 12)]
    table.accept(2)
    assert table.sent() == [(4, 13)]


def test_a_second_failover_in_the_middle_of_the_first_forgets_nothing() -> None:
    table = Table()
    table.call(10, 11, 12)
    table.sent()
    table.table.resume(limit=1, restarted=True, now=0.0)
    assert table.sent() == [(1, 10)]
    table.table.resume(limit=10, restarted=True, now=0.0)

    assert table.sent() == [(1, 10), (2, 11), (3, 12)]


def test_a_late_answer_takes_a_request_out_of_the_ones_to_be_asked_again() -> None:
    table = Table()
    table.call(10, 11)
    table.sent()
    table.table.resume(limit=1, restarted=True, now=0.0)
    table.sent()
    assert table.accept(2) is not None
    table.accept(1)

    assert table.sent() == []
    assert table.table.unanswered == 0


def test_a_new_connection_is_not_made_to_wait_for_the_old_ones_refusal() -> None:
    table = Table()
    table.call(10, 11)
    table.sent()
    table.refuse(1, retry_after=60.0)
    table.accept(2)
    table.table.freeze()
    assert table.table.next_deadline() is None
    table.table.resume(limit=10, restarted=True, now=5.0)
    table.now = 5.0

    assert table.sent() == [(3, 10)]


def test_repairs_come_after_the_unanswered_and_before_all_that_waits() -> None:
    table = Table()
    table.call(10)
    table.sent()
    table.table.freeze()
    table.call(11)
    table.table.add_repairs([(ask(-2), None), (ask(-1), None)])
    table.table.resume(limit=10, restarted=True, now=0.0)

    assert table.sent() == [(1, 10), (2, -2), (3, -1), (4, 11)]
    repaired = table.accept(2)
    assert repaired is not None
    assert repaired.pending.repairs


def test_the_end_leaves_nothing_and_tells_whom_to_tell() -> None:
    table = Table(limit=1)
    calls = table.call(10, 11)
    table.sent()

    assert table.table.clear() == calls
    assert (table.table.unanswered, table.table.waiting) == (0, 0)
    assert table.sent() == []
    assert repr(table.table) == "<RequestTable waiting=0 unanswered=0>"


def test_a_request_that_is_dropped_is_not_asked_again() -> None:
    table = Table()
    table.call(10, 11)
    table.sent()
    table.table.resume(limit=10, restarted=True, now=0.0)

    assert table.table.drop(RequestNumber(1)).call == "call 10"
    assert table.sent() == [(2, 11)]
