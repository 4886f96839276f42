"""The node's half of a session, without a node: requests, answers, refusals, tokens, credentials, losses."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import orjson
import pytest

from gateway.core.pacing.workload import REQUEST_BYTES, weight
from gateway.core.session.pending import RUN_BYTES, PendingRequests, Work, maybe_executed
from gateway.core.session.server_session import RETRY_AFTER, ServerSession
from gateway.core.stream.machine import SessionMachine
from gateway.core.types import Attempt, GridGeneration, PacketId, RequestNumber, SessionId, TokenGeneration
from gateway.core.wire.packets import (
    Ack,
    Authenticate,
    Bye,
    ClientRequest,
    Malformed,
    Publish,
    Reply,
    SetProperties,
    Subscribe,
    Unsubscribe,
)
from tests.support.machines import NOW, PLENTY, opened, resuming


def session(machine: SessionMachine | None = None) -> ServerSession:
    return ServerSession(
        SessionId("s"),
        principal="alice",
        window=60.0,
        machine=machine or opened(),
        declared=GridGeneration(3),
    )


def publish(number: int, size: int = 1, *, resubmitted: bool = False) -> Publish:
    return Publish(RequestNumber(number), "t", b"1" * size, resubmitted)


def subscribe(number: int, *, resubmitted: bool = False) -> Subscribe:
    return Subscribe(RequestNumber(number), "a/**", resubmitted)


def written(held: ServerSession) -> list[dict[str, Any]]:
    """The session packets that are due, which count as written then."""
    found: list[dict[str, Any]] = []
    for message in held.machine.flush(PLENTY):
        content = orjson.loads(message)
        found += content if isinstance(content, list) else [content]
    return found


def ask(held: ServerSession, work: Work, *, grid_available: bool = True) -> bool:
    """Ask for something as a node does: what is admitted waits for its turn."""
    admitted = held.admit(work, grid_available=grid_available)
    if admitted:
        held.pending.put(work)
    return admitted


def acknowledge(held: ServerSession, packet: int) -> None:
    held.machine.receive([Ack(PacketId(packet))], NOW)


def refuses(held: ServerSession) -> bool:
    return held.refusing


# --- Requests ---------------------------------------------------------------------------------------------------------


def test_requests_wait_in_the_order_in_which_they_came() -> None:
    held = session()
    for work in (subscribe(1), publish(2), Bye("enough")):
        assert ask(held, work)

    assert list(held.pending) == [subscribe(1), publish(2), Bye("enough")]
    assert held.pending.oldest == 1
    assert held.newest == 2
    assert written(held) == []


def test_publishes_that_follow_one_another_are_one_run() -> None:
    pending = PendingRequests([publish(1), publish(2), subscribe(3), publish(4)])

    assert pending.start() == ([publish(1), publish(2)], 2 * (REQUEST_BYTES + 2))
    pending.finish()
    assert pending.start()[0] == [subscribe(3)]
    pending.finish()
    assert pending.start()[0] == [publish(4)]
    pending.finish()
    assert (len(pending), pending.bytes) == (0, 0)


def test_a_run_of_large_publishes_ends_where_it_is_large_enough() -> None:
    works = [publish(number, RUN_BYTES // 2) for number in range(1, 5)]
    pending = PendingRequests(works)

    run, size = pending.start()

    assert run == works[:2]
    assert size == sum(map(weight, run))


def test_what_comes_while_a_run_is_executed_stays() -> None:
    pending = PendingRequests([publish(1)])
    pending.start()
    pending.put(publish(2))
    pending.finish()

    assert list(pending) == [publish(2)]
    assert pending.bytes == weight(publish(2))


def test_what_was_dropped_while_it_was_executed_is_not_finished_again() -> None:
    pending = PendingRequests([publish(1)])
    pending.start()
    pending.clear()
    pending.put(subscribe(2))
    pending.finish()

    assert list(pending) == [subscribe(2)]


@pytest.mark.promise("P5")
def test_what_was_started_is_resubmitted_by_whoever_goes_on_and_the_rest_is_as_it_was() -> None:
    pending = PendingRequests([publish(1), publish(2), subscribe(3)])
    pending.start()
    assert pending.started == 2
    pending.restart()

    assert list(pending) == [publish(1, resubmitted=True), publish(2, resubmitted=True), subscribe(3)]
    assert pending.started == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda again: Subscribe(RequestNumber(1), "a", again),
        lambda again: Unsubscribe(RequestNumber(1), "a", again, ("b",)),
        lambda again: SetProperties(RequestNumber(1), {"a": None}, again),
        lambda again: Authenticate(RequestNumber(1), "secret", "alice", again),
        lambda again: publish(1, resubmitted=again),
    ],
)
def test_each_kind_of_request_can_be_marked_as_perhaps_executed(make: Callable[[bool], ClientRequest]) -> None:
    assert maybe_executed(make(False)) == make(True)


def test_a_goodbye_has_no_mark_and_no_number() -> None:
    assert maybe_executed(Bye("x")) == Bye("x")
    assert PendingRequests([Bye()]).oldest is None


@pytest.mark.promise("P5")
def test_a_number_that_was_used_before_is_refused_unless_it_is_resubmitted() -> None:
    held = session()
    ask(held, subscribe(5))

    assert not ask(held, subscribe(5))
    assert ask(held, subscribe(4, resubmitted=True))
    (packet,) = written(held)
    assert (packet["request"], packet["error"]["code"]) == (5, "bad_request")


def test_a_malformed_request_is_answered_and_nothing_waits() -> None:
    held = session()

    assert not ask(held, Malformed(RequestNumber(1), "no selector"))
    (packet,) = written(held)
    assert packet["error"]["message"] == "no selector"
    assert len(held.pending) == 0


@pytest.mark.promise("P10")
def test_while_the_grid_is_unreachable_only_what_may_have_been_executed_waits() -> None:
    held = session()

    assert not ask(held, subscribe(1), grid_available=False)
    assert ask(held, subscribe(1, resubmitted=True), grid_available=False)
    assert ask(held, Bye(), grid_available=False)
    (packet,) = written(held)
    assert packet["error"]["code"] == "grid_unavailable"
    assert packet["error"]["retry_after"] == RETRY_AFTER


def test_after_a_refusal_nothing_new_is_executed_until_the_client_has_heard_of_it() -> None:
    held = session()
    ask(held, subscribe(1), grid_available=False)
    assert refuses(held)
    assert not ask(held, subscribe(2))
    written(held)
    acknowledge(held, 1)
    assert refuses(held)
    acknowledge(held, 2)

    assert not refuses(held)
    assert ask(held, subscribe(3))


# --- Answers ----------------------------------------------------------------------------------------------------------


def test_settled_is_what_was_answered_and_acknowledged_with_all_before_it() -> None:
    held = session()
    for number in (1, 3, 2):
        held.reply(Reply(request=RequestNumber(number)))
        written(held)

    assert held.settled() == 0
    acknowledge(held, 2)
    assert held.settled() == 1
    acknowledge(held, 3)
    assert held.settled() == 3


def test_a_pending_request_holds_up_what_is_settled() -> None:
    held = session()
    ask(held, subscribe(1))
    ask(held, Malformed(RequestNumber(2), "no"))
    written(held)
    acknowledge(held, 1)

    assert held.settled() == 0


@pytest.mark.promise("P2")
def test_in_a_gap_nothing_counts_as_acknowledged() -> None:
    held = session()
    held.reply(Reply(request=RequestNumber(1)))
    written(held)
    held.machine.detach()
    held.machine.give_up()

    assert held.settled() == 0


def test_a_closed_session_answers_nothing() -> None:
    held = session()
    held.machine.close()
    held.reply(Reply(request=RequestNumber(1)))

    assert held.answers.unseen == []


def test_numbering_anew_forgets_packets_and_requests_but_not_what_is_settled() -> None:
    held = session()
    held.reply(Reply(request=RequestNumber(1)))
    written(held)
    acknowledge(held, 1)
    assert held.settled() == 1
    ask(held, subscribe(2), grid_available=False)
    ask(held, subscribe(3, resubmitted=True))
    held.loss_declared(GridGeneration(4))
    resuming(held.machine).restart(NOW)
    held.begin_anew()

    assert held.settled() == 1
    assert not refuses(held)
    assert len(held.pending) == 0
    assert held.newest == 3
    assert held.known_generation == 4


# --- Tokens, losses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("generation", "presented", "expected"), [(4, 4, 5), (4, 3, 5), (4, 6, 7)])
def test_a_resume_without_the_grid_numbers_the_token_above_all_that_are_known(
    generation: int, presented: int, expected: int
) -> None:
    held = session()
    held.token_generation = TokenGeneration(generation)
    held.number_token(TokenGeneration(presented), Attempt(7))

    assert (held.token_generation, held.confirmed, held.attempt) == (expected, presented, 7)


@pytest.mark.promise("P2")
def test_a_loss_is_known_to_the_client_when_it_has_acknowledged_the_notice() -> None:
    held = session()
    assert held.known_generation == 3
    held.reply(Reply(request=RequestNumber(1)))
    held.loss_declared(GridGeneration(5))
    assert (held.declared, held.known_generation) == (5, 3)
    written(held)
    acknowledge(held, 1)

    assert held.known_generation == 5


@pytest.mark.promise("P2")
def test_a_second_loss_before_the_first_is_known_does_not_hide_it() -> None:
    held = session()
    held.reply(Reply(request=RequestNumber(1)))
    held.loss_declared(GridGeneration(5))
    held.loss_declared(GridGeneration(6))

    assert held.known_generation == 3


# --- Credentials ------------------------------------------------------------------------------------------------------


def test_the_end_of_credentials_is_told_once_and_then_comes() -> None:
    held = session()
    held.credential_expires = 1_000.0

    assert held.watch_credentials(700.0, notice=60.0) == 240.0
    assert held.look_at_credentials(939.0) == 1.0
    assert held.look_at_credentials(940.0) == 60.0
    assert held.look_at_credentials(950.0) == 50.0
    assert held.look_at_credentials(1_000.0) is None
    (notice,) = written(held)
    assert notice["code"] == "credentials_expiring"


def test_credentials_without_an_end_need_no_looking_after() -> None:
    held = session()

    assert held.watch_credentials(700.0, notice=60.0) == inf
    assert held.look_at_credentials(700.0) == inf
