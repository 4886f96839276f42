"""A session over several connections: reattaching, failing over, and what is declared (P1, P2, P5, P6, P8)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.client import Notice, Recovery, SelectionsWithdrawn, SessionState, Update
from gateway.core.client.transitions import State
from gateway.core.wire.codes import FailoverReason, Numbering, Outcome
from tests.integration.client.conftest import OpenSession
from tests.support.nodes import eventually
from tests.support.scripted_server import LIMITS, Packet, Peer, ScriptedServer, welcome

REATTACHED = {"outcome": "reattached", "token": "token-2"}
FAILED_OVER = {"outcome": "failed_over", "reason": "other_node", "lost": None, "conflated": None, "token": "token-2"}


@pytest.mark.promise("P2")
async def test_a_lost_connection_is_resumed_where_both_sides_were(server: ScriptedServer, opened: OpenSession) -> None:
    session, peer = await opened()
    subscribing = asyncio.create_task(session.subscribe("a/**"))
    await peer.answer()
    stream = await subscribing
    await peer.update("a/1", 1, "one")
    await peer.update("a/2", 1, "two")
    await eventually(lambda: stream.waiting == 2)
    publishing = asyncio.create_task(session.publish("b", 1))
    sent = await peer.expect("publish")
    peer.cut()

    again = await server.connection()
    resume = await again.welcome(**REATTACHED, received=1, resent=1)
    assert again.query == {"node": "n1"}
    away = resume.pop("away")
    assert resume == {
        "type": "resume",
        "token": "token-1",
        "attempt": 1,
        "received": 3,
        "oldest": 2,
        "supports": ["handed_over", "mirrored", "questions", "queues", "replay", "topology"],
    }
    assert isinstance(away, int)
    assert 0 <= away < 60_000
    assert await again.packet() == {"type": "ack", "received": 3}, "it proves that the client holds the new token"
    resent = await again.packet()
    assert (resent["id"], resent["request"], resent["value"]) == (sent["id"], sent["request"], 1)
    assert "resubmitted" not in resent

    again.sent = 3
    await again.update("a/1", 2, "more")
    await again.reply(resent)
    await publishing
    recovery = await anext(session.recoveries())
    assert 0 <= recovery.gap_seconds < 5
    assert recovery == Recovery(
        outcome=Outcome.REATTACHED,
        numbering=Numbering.KEPT,
        reason=None,
        node="n1",
        gap_seconds=recovery.gap_seconds,
        resent=2,
        lost=0,
        conflated=0,
        attempts=1,
        cause="the connection was lost",
    )
    assert recovery.outcome == "reattached"
    assert [(await anext(stream)).value for _ in range(3)] == ["one", "two", "more"]


@pytest.mark.promise("P2", "P5", "P6")
async def test_after_a_failover_the_unanswered_is_asked_again_and_current_values_come(
    server: ScriptedServer, opened: OpenSession
) -> None:
    session, peer = await opened()
    subscribing = asyncio.create_task(session.subscribe("a/**"))
    await peer.answer()
    stream = await subscribing
    await peer.update("a/1", 5, "five")
    await peer.update("a/2", 9, "nine")
    publishing = [asyncio.create_task(session.publish("b", value)) for value in (1, 2)]
    await peer.expect("publish")
    await peer.expect("publish")
    peer.cut()

    other = await server.connection()
    await other.welcome(**FAILED_OVER, node="n2", selections=["+a/**"], properties={"$node": "n2", "team": "fx"})
    assert await other.packet() == {"type": "ack", "received": 0}
    requests = [await other.packet() for _ in range(2)]
    assert [(each["id"], each["request"], each["resubmitted"], each["value"]) for each in requests] == [
        (1, 2, True, 1),
        (2, 3, True, 2),
    ]
    await other.update("a/1", 5, "five", snapshot=True)
    await other.update("a/2", 8, "eight", snapshot=True)
    await other.update("a/3", 1, "new", snapshot=True)
    for request in requests:
        await other.reply(request)
    assert [(await task).version for task in publishing] == [2, 3]
    other.answer_all()
    assert (await session.publish("b", 3)).version == 4, "numbers go on"

    recovery = await anext(session.recoveries())
    assert (recovery.outcome, recovery.reason, recovery.node) == ("failed_over", FailoverReason.OTHER_NODE, "n2")
    assert (recovery.resent, recovery.lost, recovery.conflated) == (2, None, None)
    assert session.node == "n2"
    assert session.properties == {"$node": "n2", "team": "fx"}
    assert [await anext(stream) for _ in range(4)] == [
        Update("a/1", "five", 5, "0-1-5", snapshot=False),
        Update("a/2", "nine", 9, "0-1-9", snapshot=False),
        Update("a/1", "five", 5, "0-1-5", snapshot=True),
        Update("a/3", "new", 1, "0-1-1", snapshot=True),
    ], "the current value once more, and never an older one"


@pytest.mark.promise("P5")
async def test_calls_made_meanwhile_wait_and_are_then_sent_for_the_first_time(
    server: ScriptedServer, opened: OpenSession
) -> None:
    session, peer = await opened()
    peer.cut()
    await eventually(lambda: session.state is SessionState.RECOVERING)
    publishing = asyncio.create_task(session.publish("a", 1))
    other = await server.connection()
    await other.welcome(**FAILED_OVER)
    request = await other.expect("publish")
    await other.reply(request)

    assert (request["id"], request["request"]) == (1, 1)
    assert "resubmitted" not in request
    assert (await publishing).version == 1
    assert session.state is SessionState.CONNECTED


@pytest.mark.promise("P3", "P8")
async def test_every_resume_counts_up_and_carries_the_newest_token(server: ScriptedServer, opened: OpenSession) -> None:
    session, peer = await opened()
    await peer.send({"type": "ping", "token": "token-renewed"})
    await peer.expect("pong")
    peer.cut()
    unanswered = await server.connection()
    first = await unanswered.packet()
    unanswered.cut()
    welcomed = await server.connection()
    second = await welcomed.welcome(**REATTACHED, received=0)
    await welcomed.expect("ack")
    welcomed.cut()
    last = await server.connection()
    third = await last.welcome(outcome="reattached", token="token-3", received=0)

    assert [(each["token"], each["attempt"]) for each in (first, second, third)] == [
        ("token-renewed", 1),
        ("token-renewed", 2),
        ("token-2", 3),
    ]
    recoveries = session.recoveries()
    assert [(await anext(recoveries)).attempts for _ in range(2)] == [2, 1]


@pytest.mark.promise("P2")
async def test_an_update_that_comes_with_the_welcome_is_not_lost(server: ScriptedServer, opened: OpenSession) -> None:
    session, peer = await opened()
    subscribing = asyncio.create_task(session.subscribe("a"))
    await peer.answer()
    stream = await subscribing
    peer.cut()
    other = await server.connection()
    await other.packet()
    await other.send(welcome(**FAILED_OVER, selections=["+a"]), other.make_update("a", 1, "early", snapshot=True))

    assert (await anext(stream)).value == "early"


@pytest.mark.promise("P7")
@pytest.mark.parametrize("code", [1001, 1006, 1012, 3999, 4000, 4001, 4003, 4004, 4005, 4100, 4101, 4103])
async def test_a_close_code_that_allows_it_is_followed_by_a_resume(
    server: ScriptedServer, opened: OpenSession, code: int
) -> None:
    session, peer = await opened()
    if code == 1006:
        peer.cut()
    else:
        await peer.close(code, "bye for now")
    other = await server.connection()
    await other.welcome(**REATTACHED)

    assert (await anext(session.recoveries())).outcome == "reattached"
    assert other.query == ({} if code == 4000 else {"node": "n1"}), "a node that goes away is not asked for again"


@pytest.mark.parametrize(("code", "close"), [("try_later", 4101), ("grid_unavailable", 4100), ("stale_attempt", 4103)])
async def test_a_node_that_cannot_yet_is_asked_again(
    server: ScriptedServer, opened: OpenSession, code: str, close: int
) -> None:
    session, peer = await opened()
    peer.cut()
    other = await server.connection()
    await other.refuse(code, "not yet", close, retry_after=0.01)
    other = await server.connection()
    await other.welcome(**REATTACHED)

    assert (await anext(session.recoveries())).attempts == 2


async def test_upgrades_refused_on_the_way_are_tried_again(server: ScriptedServer, opened: OpenSession) -> None:
    session, peer = await opened()
    server.statuses.extend([503, 502, 404, 302])
    peer.cut()
    other = await server.connection()
    await other.welcome(**REATTACHED)

    assert (await anext(session.recoveries())).attempts == 5


@pytest.mark.promise("P2")
async def test_a_welcome_that_does_not_fit_is_not_believed(server: ScriptedServer, opened: OpenSession) -> None:
    session, peer = await opened()
    peer.cut()
    for wrong in (
        {"session": "s2", "outcome": "reattached"},
        {"outcome": "reattached", "received": 99},
        {"outcome": "beamed_up", "numbering": "kept", "received": 99},
        {"outcome": "failed_over", "selections": ["no sign"]},
    ):
        other = await server.connection()
        await other.welcome(**wrong)
        assert await other.closed() == 4200
    other = await server.connection()
    await other.welcome(**REATTACHED)

    assert (await anext(session.recoveries())).attempts == 5


async def test_a_silent_node_is_given_up(server: ScriptedServer, opened: OpenSession) -> None:
    session, peer = await opened(greeting={"ping_interval": 0.05, "ping_timeout": 0.1})
    assert await peer.closed() == 4002
    other = await server.connection()
    await other.welcome(**REATTACHED)

    assert "silent" in (await anext(session.recoveries())).cause


@pytest.mark.promise("P2")
async def test_a_skipped_packet_is_complained_about_and_asked_for_again(
    server: ScriptedServer, opened: OpenSession
) -> None:
    session, peer = await opened()
    await peer.send({"type": "notice", "id": 2, "code": "second", "message": "the first one is missing"})
    assert (await peer.expect("error"))["message"]
    assert await peer.closed() == 4003
    other = await server.connection()
    resume = await other.welcome(**REATTACHED, resent=2)
    await other.send(
        other.numbered("notice", code="first", message=""), other.numbered("notice", code="second", message="")
    )
    notices = session.notices()

    assert resume["received"] == 0
    assert [(await anext(notices)).code for _ in range(2)] == ["first", "second"]


@pytest.mark.promise("P2")
async def test_what_came_before_the_cut_and_again_after_it_is_delivered_once(
    server: ScriptedServer, opened: OpenSession
) -> None:
    session, peer = await opened()
    await peer.send(peer.numbered("notice", code="1", message=""), peer.numbered("notice", code="2", message=""))
    notices = session.notices()
    assert [(await anext(notices)).code for _ in range(2)] == ["1", "2"]
    peer.cut()
    other = await server.connection()
    await other.welcome(**REATTACHED)
    await other.send(*(other.numbered("notice", code=code, message="") for code in "123"))

    assert (await anext(notices)).code == "3"


@pytest.mark.promise("P1", "P10")
async def test_a_grid_that_forgot_is_reminded_before_anything_new(server: ScriptedServer, opened: OpenSession) -> None:
    session, peer = await opened(greeting={"limits": {**LIMITS, "requests": 1}})
    peer.answer_all()
    _held = await session.subscribe("a/**")
    await session.unsubscribe("a/old/**")
    await session.set_properties({"team": None, "desk": "7"})
    await peer.release()
    await eventually(lambda: session.state is SessionState.RECOVERING)
    subscribing = asyncio.create_task(session.subscribe("b"))

    other = await server.connection()
    await other.welcome(**FAILED_OVER, selections=["+a/**"], properties={"$node": "n2", "team": "fx"})
    asked = [await other.answer() for _ in range(3)]
    assert [(each["type"], each.get("selector"), each.get("set")) for each in asked] == [
        ("unsubscribe", "a/old/**", None),
        ("properties", None, {"team": None, "desk": "7"}),
        ("subscribe", "b", None),
    ]
    await subscribing
    assert (await anext(session.notices())).code == "promises_restored"


async def test_a_reminder_that_is_refused_is_told(
    server: ScriptedServer, opened: OpenSession, caplog: pytest.LogCaptureFixture
) -> None:
    session, peer = await opened()
    peer.answer_all()
    _held = await session.subscribe("a/**")
    await peer.release()
    other = await server.connection()
    await other.welcome(**FAILED_OVER)
    await other.decline(await other.expect("subscribe"), "too_many_selections")
    other.answer_all()
    await session.publish("a", 1)

    assert "could not be restored: declined" in caplog.text


async def test_an_error_that_concerns_one_packet_is_told_and_the_connection_goes_on(
    server: ScriptedServer, opened: OpenSession, caplog: pytest.LogCaptureFixture
) -> None:
    session, peer = await opened()
    await peer.send({"type": "error", "code": "internal", "message": "something odd"})
    peer.answer_all()
    await session.publish("a", 1)

    assert "something odd" in caplog.text
    assert server.upgrades == 1


@pytest.mark.promise("P8")
async def test_no_secret_is_ever_logged_or_shown(
    server: ScriptedServer, opened: OpenSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    session, peer = await opened(secret="the-secret", urls=f"ws://user:the-password@127.0.0.1:{server.port}")
    await peer.send({"type": "ping", "token": "token-renewed"})
    await peer.expect("pong")
    peer.cut()
    failing = await server.connection()
    await failing.refuse("try_later", "not yet", 4101)
    other = await server.connection()
    await other.refuse("session_unknown", "no such session", 4202)
    await session.wait_closed()
    told = caplog.text + repr(session) + repr(session._supervisor) + repr(session.closed_reason)

    assert "no such session" in told
    for secret in ("token-", "the-secret", "the-password"):
        assert secret not in told


# --- Going away -------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P12")
async def test_a_node_that_asks_to_go_away_is_left_without_anything_under_way(
    server: ScriptedServer, opened: OpenSession
) -> None:
    session, peer = await opened()
    publishing = asyncio.create_task(session.publish("a", 1))
    request = await peer.expect("publish")
    await peer.send({"type": "go-away", "reason": "the node drains", "delay": 0.0})
    await peer.send(peer.numbered("notice", code="late", message=""))
    await eventually(lambda: session._supervisor._machine.state is State.FINISHING)
    waiting = asyncio.create_task(session.publish("a", 2))
    await peer.reply(request)
    assert (await publishing).version == 1
    assert (await peer.expect("ack"))["received"] == 2, "so that the node need not keep anything"
    assert await peer.closed() == 4000

    other = await server.connection()
    await other.welcome(**FAILED_OVER, node="n2")
    assert other.query == {}
    assert (await other.answer())["value"] == 2
    await waiting
    recovery = await anext(session.recoveries())
    assert (recovery.outcome, recovery.attempts) == ("failed_over", 1)
    assert "drains" in recovery.cause


async def test_a_node_that_never_answers_is_left_after_a_while(
    server: ScriptedServer, opened: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.core.client.machine.LEAVE_TIMEOUT", 0.02)
    session, peer = await opened()
    publishing = asyncio.create_task(session.publish("a", 1))
    await peer.expect("publish")
    await peer.send({"type": "go-away", "reason": "the node drains", "delay": 0.0})
    other = await server.connection()
    await other.welcome(**FAILED_OVER)

    assert (await other.answer())["resubmitted"] is True
    assert (await publishing).version == 1


@pytest.mark.promise("P12")
async def test_requests_that_a_draining_node_refuses_are_executed_elsewhere(
    server: ScriptedServer, opened: OpenSession
) -> None:
    session, peer = await opened()
    publishing = asyncio.create_task(session.publish("a", 1))
    await peer.decline(await peer.expect("publish"), "draining", retry_after=60)
    await peer.send({"type": "go-away", "reason": "the node drains", "delay": 0.0})
    other = await server.connection()
    await other.welcome(**FAILED_OVER)

    assert (await other.answer())["request"] == 2
    await publishing


# --- Under fire -------------------------------------------------------------------------------------------------------


class FlakyServer:
    """The server's side of one session over many connections: it resends as it must, and keeps count of all it gets.

    Attributes:
        asked: value by request number; a request that comes twice fails the test.
    """

    def __init__(self, notices: int) -> None:
        self.asked: dict[int, int] = {}
        self._to_come = [str(number) for number in range(1, notices + 1)]
        self._sent: list[Packet] = []
        self._received = 0

    async def talk(self, peer: Peer, packets: int) -> None:
        """Send two notices, and take in and answer some packets."""
        for code in self._to_come[:2]:
            await self._send(peer, {"type": "notice", "code": code, "message": ""})
        del self._to_come[:2]
        for _ in range(packets):
            packet = await peer.packet()
            if packet["type"] == "publish":
                assert packet["id"] == self._received + 1
                assert packet["request"] not in self.asked
                self._received = packet["id"]
                self.asked[packet["request"]] = packet["value"]
                answer = {"version": 1, "event": "0-1-1"}
                await self._send(peer, {"type": "reply", "request": packet["request"], **answer})

    async def _send(self, peer: Peer, packet: Packet) -> None:
        self._sent.append({"id": len(self._sent) + 1, **packet})
        await peer.send(self._sent[-1])

    async def take_back(self, peer: Peer, token: str) -> None:
        """Welcome the client back and resend what it lacks, in the same message."""
        resume = await peer.packet()
        missed = self._sent[resume["received"] :]
        greeting = welcome(outcome="reattached", token=token, received=self._received, resent=len(missed))
        await peer.send(greeting, *missed)


@pytest.mark.promise("P2", "P5")
async def test_fifty_cuts_lose_nothing_and_double_nothing(server: ScriptedServer, opened: OpenSession) -> None:
    """The cuts come after an ever different number of packets, sometimes two in a row, sometimes in the handshake."""
    total = 200
    session, peer = await opened()
    flaky = FlakyServer(notices=total)
    reading = asyncio.create_task(_codes(session.notices(), total))
    publishing = asyncio.gather(*(session.publish("a", value) for value in range(total)))
    for cut in range(50):
        await flaky.talk(peer, cut % 4)
        peer.cut()
        for _ in range(cut % 3):
            unlucky = await server.connection()
            if cut % 2:
                await unlucky.packet()
            unlucky.cut()
        peer = await server.connection()
        await flaky.take_back(peer, f"token-{cut}")
    while len(flaky.asked) < total:
        await flaky.talk(peer, 1)

    assert await reading == [str(number) for number in range(1, total + 1)]
    assert len(await publishing) == total
    assert flaky.asked == {number + 1: number for number in range(total)}
    recoveries = session.recoveries()
    assert {(await anext(recoveries)).outcome for _ in range(50)} == {"reattached"}


async def _codes(notices: AsyncIterator[Notice], count: int) -> list[str]:
    return [(await anext(notices)).code for _ in range(count)]


def withdrawn(peer: Peer, left: list[str]) -> dict[str, Any]:
    return peer.numbered(
        "notice", code="permissions_withdrawn", message="less", withdrawn=["prices/**"], selections=left
    )


LEFT = ["+prices/public/**"]
WITHDRAWN = SelectionsWithdrawn("permissions_withdrawn", "less", ("prices/**",), tuple(LEFT))


@pytest.mark.promise("P2")
async def test_withdrawn_selections_are_told_and_not_asked_for_again(
    server: ScriptedServer, opened: OpenSession
) -> None:
    session, peer = await opened()
    peer.answer_all()
    _held = await session.subscribe("prices/**")
    await peer.send(peer.numbered("notice", code="withheld", message=""), withdrawn(peer, LEFT))
    assert await anext(session.notices()) == WITHDRAWN
    await peer.release()

    other = await server.connection()
    await other.welcome(**FAILED_OVER, selections=LEFT)
    other.answer_all()
    await session.publish("a", 1)
    assert list(session._supervisor.notices._kept) == [WITHDRAWN], "nothing had to be restored"


@pytest.mark.promise("P2")
async def test_what_is_withdrawn_at_a_failover_is_not_asked_for_again(
    server: ScriptedServer, opened: OpenSession
) -> None:
    session, peer = await opened()
    peer.answer_all()
    _held = await session.subscribe("prices/**")
    await peer.release()
    other = await server.connection()
    await other.welcome(**FAILED_OVER, selections=LEFT, withdrawn=["prices/**"])
    await other.send(withdrawn(other, LEFT))
    other.answer_all()
    await session.publish("a", 1)
    assert list(session._supervisor.notices._kept) == [WITHDRAWN], "nothing had to be restored"


@pytest.mark.promise("P2")
async def test_a_withdrawal_that_was_lost_with_its_node_is_found_by_asking(
    server: ScriptedServer, opened: OpenSession
) -> None:
    session, peer = await opened()
    peer.answer_all()
    _held = await session.subscribe("prices/**")
    await peer.release()
    other = await server.connection()
    await other.welcome(**FAILED_OVER, selections=LEFT)
    ask = await other.expect("subscribe")
    assert ask["selector"] == "prices/**", "what is left is not given up to ask for the rest"
    await other.decline(ask, "forbidden")
    other.answer_all()
    await session.publish("a", 1)
    told = list(session._supervisor.notices._kept)[-1]
    assert isinstance(told, SelectionsWithdrawn)
    assert (told.withdrawn, told.selections) == (("prices/**",), tuple(LEFT))
    await other.release()

    third = await server.connection()
    await third.welcome(**FAILED_OVER, selections=LEFT)
    third.answer_all()
    await session.publish("a", 2)
    assert len(list(session._supervisor.notices._kept)) == 2, "it is not asked for a second time"


async def test_selections_that_are_none_are_a_violation(server: ScriptedServer, opened: OpenSession) -> None:
    session, peer = await opened()
    await peer.send(withdrawn(peer, ["prices"]))
    assert "its selections are not valid" in (await peer.expect("error"))["message"]
    assert session.state is SessionState.RECOVERING or session.state is SessionState.CLOSED
