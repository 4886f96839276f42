"""What nodes say to each other of a session that is handed over, and what becomes of it (rung 2)."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest

from gateway.core.session.export import export, restore
from gateway.core.session.handoff import (
    GONE,
    MOST_HEAD_BYTES,
    MOST_OFFERED,
    UNCLAIMED,
    ClaimRank,
    Given,
    GiveStatus,
    Take,
    assume,
    decode_accepted,
    decode_offer,
    encode_accepted,
    encode_offer,
    is_outdated,
    may_give,
)
from gateway.core.session.server_session import ServerSession
from gateway.core.stream.byte_form import join
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.transitions import Role
from gateway.core.topics.selections import Selections
from gateway.core.types import Attempt, Epoch, EventId, GridGeneration, RequestNumber, SessionId, TokenGeneration
from gateway.core.wire.errors import InvalidExport
from gateway.core.wire.packets import Publish, Subscribe
from tests.support.machines import PARAMETERS, opened

pytestmark = pytest.mark.promise("P12")

GIVEN = Given(
    GiveStatus.GIVEN,
    b"\x00session",
    {0: EventId("0-0-0"), 17: EventId("17-1-88")},
    {RequestNumber(3): "a/**", RequestNumber(4): 'b/"ä"'},
)


def session(name: str = "s", principal: str = "alice") -> ServerSession:
    return ServerSession(
        SessionId(name), principal=principal, window=60.0, machine=opened(), declared=GridGeneration(1)
    )


def test_a_question_is_read_as_it_was_written() -> None:
    take = Take(SessionId("s-1"), Epoch(7))
    assert Take.decode(take.encode()) == take
    assert Take.decode(orjson.dumps({"session": "s-1", "epoch": 7, "of_a_later_release": [1]})) == take


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"session": 1, "epoch": 1}',
        b'{"session": "s"}',
        b'{"session": "s", "epoch": "1"}',
        b'{"session": "s", "epoch": 0}',
        b'{"session": "s", "epoch": 9007199254740992}',
    ],
)
def test_what_is_no_question_is_told_apart(data: bytes) -> None:
    with pytest.raises(InvalidExport):
        Take.decode(data)


def test_an_offer_and_its_answer_are_read_as_they_were_written() -> None:
    offered = [Take(SessionId("s-1"), Epoch(7)), Take(SessionId("s-2"), Epoch(1))]
    assert decode_offer(encode_offer(offered)) == offered
    assert decode_offer(encode_offer([])) == []
    assert decode_accepted(encode_accepted(2)) == 2


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b'{"sessions": {}}',
        b'{"sessions": ["s"]}',
        b'{"sessions": [{"session": "s"}]}',
        encode_offer([Take(SessionId("s"), Epoch(1))] * (MOST_OFFERED + 1)),
    ],
)
def test_what_is_no_offer_is_told_apart(data: bytes) -> None:
    with pytest.raises(InvalidExport):
        decode_offer(data)


@pytest.mark.parametrize("data", [b"", b"{}", b'{"accepted": "2"}', b'{"accepted": -1}'])
def test_what_answers_no_offer_is_told_apart(data: bytes) -> None:
    with pytest.raises(InvalidExport):
        decode_accepted(data)


@pytest.mark.parametrize("given", [GIVEN, GONE, UNCLAIMED])
def test_an_answer_is_read_as_it_was_written(given: Given) -> None:
    assert Given.decode(given.encode()) == given


def test_an_answer_of_a_later_release_is_read_as_far_as_it_is_known() -> None:
    head = {"status": "given", "cuts": {}, "unfinished": {}, "more": 1}
    assert Given.decode(join([orjson.dumps(head), b"session", b"and more"])) == Given(GiveStatus.GIVEN, b"session")
    assert Given.decode(join([orjson.dumps({"status": "on_its_way"}), b""])) is GONE


def test_a_place_that_is_none_counts_as_absent() -> None:
    """Then current values are sent of that partition, and that is declared; a wrong place would skip updates."""
    cuts = {"1": "1-1-5", "2": "3-1-5", "4": "4-1", "64": "64-1-1", "x": "1-1-1", "5": None}
    head = {"status": "given", "cuts": cuts, "unfinished": {}}
    assert Given.decode(join([orjson.dumps(head), b""])).cuts == {1: EventId("1-1-5")}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        join([]),
        join([b"{}"]),
        join([b"", b""]),
        join([b"[]", b""]),
        join([b'{"status": "given", "cuts": {}}', b""]),
        join([b'{"status": "given", "cuts": {}, "unfinished": {"a": "b"}}', b""]),
        join([b'{"status": "given", "cuts": {}, "unfinished": {"1": 2}}', b""]),
        join([b'{"status": "given", "cuts": {}, "unfinished": {"%b": "a"}}' % (b"9" * 5000), b""]),
        join([b'{"status": "given", "cuts": {}, "unfinished": {}}' + b" " * MOST_HEAD_BYTES, b""]),
        GIVEN.encode()[:-1],
    ],
)
def test_what_is_no_answer_is_told_apart(data: bytes) -> None:
    with pytest.raises(InvalidExport):
        Given.decode(data)


@pytest.mark.promise("P3")
@pytest.mark.parametrize(
    ("own", "given", "asked", "may"),
    [
        (5, 0, 6, True),
        (5, 0, 9, True),
        (5, 0, 5, False),
        (5, 0, 4, False),
        (5, 6, 6, True),
        (5, 6, 7, True),
        (5, 7, 6, False),
    ],
)
def test_the_later_claim_has_the_session_whoever_comes_first(own: int, given: int, asked: int, *, may: bool) -> None:
    """H3."""
    ranks = [ClaimRank(Attempt(epoch - 1), Epoch(epoch)) for epoch in (own, given, asked)]
    passed_on = [ClaimRank(Attempt(3), Epoch(epoch)) for epoch in (own, given, asked)]
    for before, once, now in (ranks, passed_on):
        assert may_give(before, once if given else None, now) is may


@pytest.mark.promise("P3")
@pytest.mark.parametrize(("attempt", "epoch", "may"), [(8, 5, True), (8, 4, True), (7, 5, False), (6, 6, False)])
def test_after_a_lost_claim_the_attempts_of_the_client_tell_which_one_is_later(
    attempt: int, epoch: int, *, may: bool
) -> None:
    """The grid counts epochs anew from where it was; the client never does."""
    assert may_give(ClaimRank(Attempt(7), Epoch(5)), None, ClaimRank(Attempt(attempt), Epoch(epoch))) is may


def test_a_session_goes_on_with_what_only_its_node_knew_and_with_what_the_grid_says_by_now() -> None:
    """H4: what had begun is asked again as something that may have been executed, and nothing else is."""
    before = session()
    for number in (1, 2, 3):
        before.pending.put(Publish(RequestNumber(number), "a", b"1"))
    before.pending.start()
    before.pending.put(Subscribe(RequestNumber(4), "b"))
    before.newest = RequestNumber(4)
    before.answers.settled = RequestNumber(2)
    before.declaring = (3, GridGeneration(1))
    before.from_copy = True
    before.token_generation, before.attempt = TokenGeneration(1), Attempt(0)
    before.properties = {"of": "then"}
    after = session()
    after.token_generation, after.attempt = TokenGeneration(2), Attempt(9)
    after.properties = {"of": "now"}
    before.machine.detach()
    given = restore(export(before, 10.0), 500.0)

    assume(after, given)

    assert [(each.request, each.resubmitted) for each in after.pending if isinstance(each, Publish | Subscribe)] == [
        (1, True),
        (2, True),
        (3, True),
        (4, False),
    ]
    assert after.pending.started == 0
    assert (after.newest, after.answers.settled, after.declaring, after.from_copy) == (4, 2, (3, 1), True)
    assert after.machine is given.machine
    assert (after.token_generation, after.attempt, after.properties) == (2, 9, {"of": "now"})


@pytest.mark.promise("P1")
@pytest.mark.parametrize(("stored", "is_newer"), [(1, True), (2, False), (3, False)])
def test_of_a_record_that_has_gone_back_only_what_an_owner_wrote_is_taken_from_the_session(
    stored: int, *, is_newer: bool
) -> None:
    """What was promised counts, where the grid has lost it. Who may do what is for the grid alone to say."""
    before, after = session(), session()
    before.selections, after.selections = Selections.from_wire(["+then"]), Selections.from_wire(["+now"])
    before.properties, after.properties = {"of": "then"}, {"of": "now"}
    before.publish_partitions, after.publish_partitions = frozenset({1, 2}), frozenset({2, 3})
    before.roles, after.roles = frozenset({"then"}), frozenset({"now"})
    before.token_generation, after.token_generation = TokenGeneration(9), TokenGeneration(2)
    before.stored_generation, after.stored_generation = GridGeneration(stored), GridGeneration(2)
    before.machine.detach()

    assume(after, restore(export(before, 10.0), 10.0))

    when = "then" if is_newer else "now"
    assert (after.selections.to_wire(), after.properties) == ((f"+{when}",), {"of": when})
    assert after.publish_partitions == ({1, 2, 3} if is_newer else {2, 3})
    assert after.stored_generation == (stored if is_newer else 2), "from which follows whether it is to be written"
    assert after.roles == {"now"}
    assert after.token_generation == TokenGeneration(2)


@pytest.mark.parametrize("other", [session("t"), session(principal="bob")])
def test_another_session_than_the_one_that_was_asked_for_is_refused(other: ServerSession) -> None:
    other.machine.detach()
    asked = session()
    machine = asked.machine
    with pytest.raises(InvalidExport, match="was asked for"):
        assume(asked, other)
    assert asked.machine is machine


@pytest.mark.promise("P2")
@pytest.mark.parametrize(("presented", "is_so"), [(1, False), (3, False), (4, True)])
def test_who_shows_a_later_token_was_served_elsewhere_since(presented: int, *, is_so: bool) -> None:
    given = session()
    given.token_generation = TokenGeneration(3)
    assert is_outdated(given, TokenGeneration(presented)) is is_so


def connected() -> SessionMachine:
    return opened()


def fresh() -> SessionMachine:
    return SessionMachine(Role.SERVER, PARAMETERS)


def closed() -> SessionMachine:
    machine = opened()
    machine.close()
    return machine


def of_a_client() -> SessionMachine:
    machine = opened(Role.CLIENT)
    machine.detach()
    return machine


@pytest.mark.parametrize("make", [connected, fresh, closed, of_a_client])
def test_what_cannot_go_on_is_refused(make: Callable[[], SessionMachine]) -> None:
    """Whatever another node gives: a session that is served there still, or none that a client could come back to."""
    asked, other = session(), session()
    other.machine = make()
    with pytest.raises(InvalidExport, match="was given as"):
        assume(asked, restore(export(other, 10.0), 10.0))
