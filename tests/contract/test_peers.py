"""The contract of ``PeerLinks``: on the twin in memory, and on real sockets with and without TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from math import inf
from pathlib import Path

import pytest

from gateway.core.types import Incarnation, NodeId, NodeRef
from gateway.ports.peers import DOWN, Declined, NoLink, Silent, TooLarge
from tests.contract.peer_harness import (
    LIMITS,
    SILENCE,
    MemoryPeerHarness,
    PeerHarness,
    StreamPeerHarness,
)
from tests.support.clock import eventually
from tests.support.times import scaled

N1, N2, N3 = (NodeRef(NodeId(name), Incarnation("first")) for name in ("n1", "n2", "n3"))
N2_AGAIN = NodeRef(NodeId("n2"), Incarnation("a-second"))

PATIENT = scaled(20.0)
"""Seconds for an answer that must come."""

SOON = scaled(0.2)
"""Seconds for one that must not."""


@pytest.fixture(params=["memory", "sockets", "tls"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PeerHarness]:
    harness: PeerHarness
    match request.param:
        case "memory":
            harness = MemoryPeerHarness()
        case "sockets":
            harness = StreamPeerHarness()
        case _:
            harness = StreamPeerHarness(tmp_path)
    yield harness
    await harness.close()


async def test_nodes_that_know_of_each_other_are_linked(harness: PeerHarness) -> None:
    n1 = await harness.node(N1, features=("mirror", "park"))
    n2 = await harness.node(N2, features=("park", "zones"))
    n3 = await harness.node(N3)
    await harness.introduce(n1, n2, n3)
    for one, other in ((n1, n2), (n1, n3), (n2, n3)):
        await harness.linked(one, other)
        assert one.links.state(other.ref).silence < SILENCE
    assert n1.ups(n2)[0].features == n2.ups(n1)[0].features == {"park"}
    assert n1.ups(n3)[0].features == set()


async def test_one_that_knows_the_other_is_enough(harness: PeerHarness) -> None:
    n1, n2 = await harness.node(N1), await harness.node(N2)
    await harness.tell(n1)
    await harness.tell(n2, n1)
    await harness.linked(n1, n2)


async def test_a_question_is_answered(harness: PeerHarness) -> None:
    n1, n2 = await harness.pair(N1, N2)
    assert await n1.links.ask(N2, "echo", b"what", within=PATIENT) == b"what"
    assert await n2.links.ask(N1, "echo", b"", within=PATIENT) == b""
    question = n2.questions(n1)[-1]
    assert (question.kind, question.body) == ("echo", b"what")
    assert 0 < question.within <= PATIENT


async def test_large_messages_arrive_whole_and_beside_small_ones(harness: PeerHarness) -> None:
    n1, n2 = await harness.pair(N1, N2)
    large = bytes(range(256)) * 4 * 1024
    questions = [n1.links.ask(N2, "echo", large + bytes([n]), within=PATIENT) for n in range(3)]
    answers = [n2.links.ask(N1, "size", str(n).encode(), within=PATIENT) for n in (0, 1, 262_134, 262_135, 3_000_000)]
    replies = await asyncio.gather(*questions, *answers)
    assert [reply[-1] for reply in replies[:3]] == [0, 1, 2]
    assert all(reply[:-1] == large for reply in replies[:3])
    assert [len(reply) for reply in replies[3:]] == [0, 1, 262_134, 262_135, 3_000_000]


async def test_records_arrive_in_order_and_are_numbered(harness: PeerHarness) -> None:
    n1, n2 = await harness.pair(N1, N2)
    sizes = [0, 10, 300_000, 5, 262_144, 1, 700_000, 2]
    sent = [n1.links.send(N2, "log", bytes([n % 256]) * size) for n, size in enumerate(sizes)]
    back = [n2.links.send(N1, "ack", b"%d" % n) for n in range(3)]
    assert sent == list(range(1, len(sizes) + 1))
    assert back == [1, 2, 3]
    await eventually(lambda: len(n2.records(n1)) == len(sizes) and len(n1.records(n2)) == len(back))
    assert [record.sequence for record in n2.records(n1)] == sent
    assert [record.body for record in n2.records(n1)] == [bytes([n % 256]) * size for n, size in enumerate(sizes)]
    assert {record.kind for record in n2.records(n1)} == {"log"}


async def test_without_a_link_nothing_is_sent(harness: PeerHarness) -> None:
    n1 = await harness.node(N1)
    await harness.tell(n1)
    with pytest.raises(NoLink):
        await n1.links.ask(N2, "echo", b"", within=PATIENT)
    with pytest.raises(NoLink):
        n1.links.send(N2, "log", b"")
    assert n1.links.state(N2) == DOWN
    assert n1.links.state(N2).silence == inf


async def test_who_does_not_answer_in_time_is_silent(harness: PeerHarness) -> None:
    n1, n2 = await harness.pair(N1, N2)
    with pytest.raises(Silent):
        await n1.links.ask(N2, "mute", b"", within=SOON)
    assert n1.is_up(n2)
    assert await n1.links.ask(N2, "echo", b"still there", within=PATIENT) == b"still there"
    # An answer that comes too late is nobody's.
    n2.questions(n1)[-2].answer(b"late")
    assert await n1.links.ask(N2, "echo", b"and now", within=PATIENT) == b"and now"


async def test_a_second_answer_says_nothing(harness: PeerHarness) -> None:
    n1, n2 = await harness.pair(N1, N2)
    n2.answering = False
    asked = asyncio.create_task(n1.links.ask(N2, "take", b"", within=PATIENT))
    await eventually(lambda: bool(n2.questions(n1)) and n2.questions(n1)[-1].kind == "take")
    question = n2.questions(n1)[-1]
    question.answer(b"first")
    question.answer(b"second")
    question.fail()
    assert await asked == b"first"


async def test_what_is_not_understood_is_declined_and_what_failed_is_silent(harness: PeerHarness) -> None:
    n1, _ = await harness.pair(N1, N2)
    with pytest.raises(Declined):
        await n1.links.ask(N2, "of_a_later_version", b"", within=PATIENT)
    with pytest.raises(Silent):
        await n1.links.ask(N2, "fail", b"", within=PATIENT)


async def test_what_is_too_large_is_not_sent(harness: PeerHarness) -> None:
    n1, n2 = await harness.pair(N1, N2)
    with pytest.raises(TooLarge):
        await n1.links.ask(N2, "echo", bytes(LIMITS.message + 1), within=PATIENT)
    with pytest.raises(TooLarge):
        n1.links.send(N2, "log", bytes(LIMITS.message + 1))
    with pytest.raises(Silent):
        await n1.links.ask(N2, "size", b"%d" % (LIMITS.message + 1), within=PATIENT)
    assert len(await n1.links.ask(N2, "echo", bytes(LIMITS.message), within=PATIENT)) == LIMITS.message
    assert not n1.downs(n2)


async def test_a_cut_breaks_what_is_under_way_and_links_come_back(harness: PeerHarness) -> None:
    n1, n2 = await harness.pair(N1, N2)
    n1.links.send(N2, "log", b"before")
    await eventually(lambda: bool(n2.records(n1)))
    asked = asyncio.create_task(n1.links.ask(N2, "mute", b"", within=PATIENT))
    await eventually(lambda: n2.questions(n1)[-1].kind == "mute")
    harness.cut(n1, n2)
    with pytest.raises(Silent):
        await asked
    await eventually(lambda: not n1.is_up(n2) and not n2.is_up(n1))
    with pytest.raises(NoLink):
        await n1.links.ask(N2, "echo", b"", within=PATIENT)
    await harness.mend(n1, n2)
    await harness.linked(n1, n2)
    assert n1.links.send(N2, "log", b"after") == 1
    await eventually(lambda: [record.body for record in n2.records(n1)] == [b"before", b"after"])
    assert n1.downs(n2)
    assert n2.downs(n1)


async def test_one_way_is_noticed(harness: PeerHarness) -> None:
    n1, n2 = await harness.pair(N1, N2)
    harness.stall(n2, n1)
    with pytest.raises(Silent):
        await n1.links.ask(N2, "echo", b"heard, and not answered", within=SOON)
    await eventually(lambda: bool(n2.questions(n1)) and n2.questions(n1)[-1].body == b"heard, and not answered")
    await eventually(lambda: n1.links.state(N2).silence > SILENCE / 4, message="the silence grows")
    await eventually(lambda: not n1.is_up(n2), message="in the end the link is broken")
    await harness.mend(n1, n2)
    await harness.linked(n1, n2)


async def test_a_slow_network_keeps_the_order(harness: PeerHarness) -> None:
    n1, n2 = await harness.pair(N1, N2)
    harness.delay(SOON, n1, n2)
    for n in range(20):
        n1.links.send(N2, "log", b"%d" % n)
    harness.delay(0, n1, n2)
    for n in range(20, 40):
        n1.links.send(N2, "log", b"%d" % n)
    await eventually(lambda: len(n2.records(n1)) == 40)
    assert [record.body for record in n2.records(n1)] == [b"%d" % n for n in range(40)]


async def test_of_records_that_are_lost_none_is_left_out(harness: PeerHarness) -> None:
    n1, n2 = await harness.pair(N1, N2)
    harness.drop_soon(n1, n2)
    for n in range(60):
        n1.links.send(N2, "log", b"%03d" % n * 1_000)
    await eventually(lambda: bool(n2.downs(n1)))
    await harness.linked(n1, n2)
    arrived = [record.sequence for record in n2.records(n1)]
    assert arrived == list(range(1, len(arrived) + 1))
    assert len(arrived) < 60


async def test_a_node_that_left_is_hung_up(harness: PeerHarness) -> None:
    n1, n2 = await harness.pair(N1, N2)
    n3 = await harness.node(N3)
    await harness.introduce(n1, n2, n3)
    await harness.linked(n1, n3)
    await harness.linked(n2, n3)
    await harness.tell(n1, n3)
    await harness.tell(n3, n1)
    await eventually(lambda: not n1.is_up(n2) and not n3.is_up(n2) and not n2.is_up(n1))
    assert n1.is_up(n3)
    # It knocks in vain, for as long as the others do not see it in the node table.
    with pytest.raises(AssertionError):
        await eventually(lambda: n2.is_up(n1) and n1.is_up(n2), deadline=0.5)
    await harness.introduce(n1, n2, n3)
    await harness.linked(n1, n2)


async def test_a_node_that_starts_anew_takes_the_place_of_its_former_run(harness: PeerHarness) -> None:
    n1, old = await harness.pair(N1, N2)
    # The grid lists both until the lease of the former run is over.
    new = await harness.node(N2_AGAIN, started=2.0)
    await harness.tell(new, n1)
    await harness.linked(n1, new)
    await eventually(lambda: not n1.is_up(old), message="the former run is hung up")
    await harness.tell(n1, old, new)
    await harness.linked(n1, new)
    with pytest.raises(AssertionError):
        await eventually(lambda: n1.is_up(old), deadline=0.5)
    assert await n1.links.ask(N2_AGAIN, "echo", b"new", within=PATIENT) == b"new"


@pytest.mark.parametrize("knows", [False, True], ids=["is dialled", "dials too"])
async def test_a_node_that_starts_anew_is_linked_where_its_former_run_was(harness: PeerHarness, knows: bool) -> None:
    """Others dial it before the node table tells them of it, and hung up because it was not whom they had dialled.

    Until it noticed, it took that connection for its link, and refused the good one as a second one.
    """
    n1, old = await harness.pair(N1, N2)
    harness.cut(n1, old)
    await eventually(lambda: not n1.is_up(old))
    await old.links.close()
    new = await harness.node(N2_AGAIN, started=2.0)
    await harness.tell(new, *([n1] if knows else []))
    harness.move_in(new, old)
    await harness.mend(n1, old)
    await harness.linked(n1, new)
    await harness.tell(new, n1)
    await harness.tell(n1, old, new)
    assert await n1.links.ask(N2_AGAIN, "echo", b"new", within=PATIENT) == b"new"
    # Of two that both dial, one may take the place of the other; what was good is not hung up otherwise.
    assert all("another connection took over" in each.why for each in new.downs(n1))
    if not knows:
        assert (len(new.ups(n1)), new.downs(n1)) == (1, [])


async def test_another_cluster_is_another_world(harness: PeerHarness) -> None:
    n1, n2 = await harness.node(N1), await harness.node(N2)
    await harness.tell(n1, n2, cluster="one")
    await harness.tell(n2, n1, cluster="two")
    with pytest.raises(AssertionError):
        await eventually(lambda: n1.is_up(n2) or n2.is_up(n1), deadline=0.5)
    await harness.tell(n2, n1, cluster="one")
    await harness.linked(n1, n2)
    await harness.tell(n1, n2, cluster="two")
    await eventually(lambda: not n1.is_up(n2) and not n2.is_up(n1))


async def test_who_takes_nothing_costs_a_bounded_share(harness: PeerHarness) -> None:
    n1 = await harness.node(N1)
    n2 = await harness.node(N2, takes=False)
    await harness.introduce(n1, n2)
    await eventually(lambda: n1.is_up(n2) and n2.is_up(n1))
    sent = 0

    async def flood() -> None:
        nonlocal sent
        while sent < 100 * LIMITS.queue:
            n1.links.send(N2, "log", bytes(100_000))
            sent += 100_000
            await asyncio.sleep(0)

    with pytest.raises(NoLink):
        await flood()
    # What waits here, what waits there, and what the kernel holds of both sockets and a proxy.
    assert sent < LIMITS.queue + 40 * 1024 * 1024
    await eventually(lambda: bool(n1.downs(n2)))


async def test_questions_without_an_answer_are_bounded(harness: PeerHarness) -> None:
    n1, n2 = await harness.pair(N1, N2)
    asked = [asyncio.create_task(n1.links.ask(N2, "mute", b"", within=PATIENT)) for _ in range(LIMITS.questions)]
    await eventually(lambda: len([each for each in n2.questions(n1) if each.kind == "mute"]) == LIMITS.questions)
    with pytest.raises(NoLink):
        await n1.links.ask(N2, "echo", b"", within=PATIENT)
    for question in n2.questions(n1):
        question.answer(b"now")
    assert await asyncio.gather(*asked) == [b"now"] * LIMITS.questions
    assert await n1.links.ask(N2, "echo", b"again", within=PATIENT) == b"again"


async def test_who_is_cancelled_while_asking_leaves_nothing(harness: PeerHarness) -> None:
    n1, n2 = await harness.pair(N1, N2)
    for _ in range(2 * LIMITS.questions):
        asked = asyncio.create_task(n1.links.ask(N2, "echo", b"", within=PATIENT))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
    assert await n1.links.ask(N2, "echo", b"there", within=PATIENT) == b"there"
    assert not n1.downs(n2)


async def test_a_node_that_stops_says_so(harness: PeerHarness) -> None:
    n1, n2 = await harness.pair(N1, N2)
    asked = asyncio.create_task(n2.links.ask(N1, "mute", b"", within=PATIENT))
    await eventually(lambda: any(each.kind == "mute" for each in n1.questions(n2)))
    await n2.links.close()
    with pytest.raises(Silent):
        await asked
    await eventually(lambda: not n1.is_up(n2))
    assert "n2 stops" in n1.downs(n2)[0].why
    with pytest.raises(NoLink):
        await n2.links.ask(N1, "echo", b"", within=PATIENT)


async def test_a_run_that_tells_two_times_of_its_start_is_one_run(harness: PeerHarness) -> None:
    n1, n2 = await harness.node(N1), await harness.node(N2, started=1.0)
    n2.started = 1.25
    await harness.introduce(n1, n2)
    await harness.linked(n1, n2)
