"""Revocation seen from the wire: refused at hello and on every rung, and closed where it is connected."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.adapters.authentication import AnonymousAuthenticator
from gateway.adapters.memory import MemoryGrid, MemoryGridServer
from gateway.adapters.memory.session_store import MemorySessionStore
from gateway.adapters.memory.stores import MemoryRevocationStore
from gateway.app.security import revocations as revoking
from gateway.app.security.revocations import InvalidRevocation, TooManyRevocations
from gateway.catalogue import log_events as events
from gateway.core.policy.revocations import Revocation, RevocationKind
from gateway.core.types import Attempt, Incarnation, NodeId, NodeRef
from gateway.ports import Claimed, Credentials, GridUnavailable, Identity
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.promise("P8")

PRINCIPAL, SESSION, CREDENTIAL = RevocationKind.PRINCIPAL, RevocationKind.SESSION, RevocationKind.CREDENTIAL
REVOKED = 4206


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have everybody show a credential with an id: that of their secret."""

    async def authenticate(_self: AnonymousAuthenticator, credentials: Credentials) -> Identity:
        return Identity(principal=credentials.principal, credential=credentials.secret)

    monkeypatch.setattr(AnonymousAuthenticator, "authenticate", authenticate)


async def revoke(node: TestNode, kind: RevocationKind, value: str, **options: Any) -> None:
    await node.gateway.node.revocations.revoke(kind, value, **options)


async def opened(stack: AsyncExitStack, node: TestNode, principal: str = "alice") -> tuple[RawClient, dict[str, Any]]:
    raw = await stack.enter_async_context(RawClient(node.url))
    return raw, await raw.hello(principal, secret=f"token-of-{principal}")


async def refused(node: TestNode, token: str, *, attempt: int = 10) -> tuple[str, int | None]:
    """Try to resume; return the error and the close code."""
    async with RawClient(node.url) as raw:
        answer = await raw.resume(token, attempt=attempt)
        assert answer["type"] == "error", answer
        return answer["code"], await raw.closed()


def left(memory: MemoryGridServer) -> set[str]:
    """Name what the grid holds of sessions, apart from the reasons of those that have ended."""
    return {name for name in memory.inventory() if name.startswith(("session ", "deadline of", "sessions of"))}


@pytest.mark.parametrize("where", ["here", "elsewhere"])
@pytest.mark.parametrize("kind", RevocationKind)
async def test_a_connected_session_is_closed_and_ended(
    memory: MemoryGridServer, n1: TestNode, n2: TestNode, kind: RevocationKind, where: str
) -> None:
    async with AsyncExitStack() as stack:
        raw, welcome = await opened(stack, n1)
        other, _ = await opened(stack, n1, "bob")

        value = {PRINCIPAL: "alice", CREDENTIAL: "token-of-alice", SESSION: welcome["session"]}[kind]
        await revoke(n1 if where == "here" else n2, kind, value)

        assert await raw.closed() == REVOKED
        assert (raw.seen[-1]["type"], raw.seen[-1]["code"]) == ("error", "revoked")
        await eventually(lambda: not any(welcome["session"] in name for name in left(memory)))
        for node in (n1, n2):
            assert await refused(node, welcome["token"]) == ("revoked", REVOKED)
        await other.send({"type": "ping"})
        await other.expect("pong")
    assert n1.gateway.node.sessions.get(welcome["session"]) is None


@pytest.mark.parametrize("kind", RevocationKind)
async def test_rung_1_a_disconnected_session_cannot_be_reattached(
    memory: MemoryGridServer, n1: TestNode, kind: RevocationKind
) -> None:
    async with AsyncExitStack() as stack:
        raw, welcome = await opened(stack, n1)
        await raw.cut()
        await eventually(lambda: n1.gateway.node.sessions.connected() == 0)

        value = {PRINCIPAL: "alice", CREDENTIAL: "token-of-alice", SESSION: welcome["session"]}[kind]
        await revoke(n1, kind, value)

        assert await refused(n1, welcome["token"]) == ("revoked", REVOKED)
        await eventually(lambda: not left(memory))


@pytest.mark.parametrize("kind", [PRINCIPAL, CREDENTIAL])
async def test_rung_4_a_session_of_a_dead_node_is_ended_by_whoever_claims_it(
    memory: MemoryGridServer, n2: TestNode, kind: RevocationKind
) -> None:
    async with AsyncExitStack() as stack:
        async with running_node("n1", memory=memory) as n1:
            raw, welcome = await opened(stack, n1)
        await raw.closed()
        await revoke(n2, kind, "alice" if kind is PRINCIPAL else "token-of-alice")
        assert left(memory), "nobody serves it, so it is there until somebody asks for it or its window ends"

        assert await refused(n2, welcome["token"]) == ("revoked", REVOKED)

        await eventually(lambda: not left(memory))
        assert await refused(n2, welcome["token"], attempt=11) == ("revoked", REVOKED)


@pytest.mark.parametrize(("kind", "value"), [(PRINCIPAL, "alice"), (CREDENTIAL, "token-of-alice")])
async def test_the_revoked_cannot_open_a_session(
    memory: MemoryGridServer, n1: TestNode, n2: TestNode, kind: RevocationKind, value: str
) -> None:
    await revoke(n1, kind, value, reason="left the company")
    await eventually(lambda: n2.gateway.node.revocations.find(kind, value) is not None)
    for node in (n1, n2):
        async with RawClient(node.url) as raw:
            await raw.send({"type": "hello", "principal": "alice", "secret": "token-of-alice"})
            error = await raw.expect("error")
            assert error["code"] == "revoked"
            assert "left the company" not in str(error), "the reason is for administrators"
            assert await raw.closed() == REVOKED
        assert len(node.log.of(events.REVOKED_REFUSED)) == 1
    assert not left(memory)


async def test_a_session_that_opens_while_it_is_revoked_does_not_stay(
    memory: MemoryGridServer, n1: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = MemorySessionStore.create

    async def late(self: MemorySessionStore, record: Any) -> None:
        await create(self, record)
        await revoke(n1, PRINCIPAL, "alice")

    monkeypatch.setattr(MemorySessionStore, "create", late)
    async with RawClient(n1.url) as raw:
        await raw.send({"type": "hello", "principal": "alice"})
        assert (await raw.expect("error"))["code"] == "revoked"
        assert await raw.closed() == REVOKED
    await eventually(lambda: not left(memory))


@pytest.mark.parametrize("where", ["held", "elsewhere"])
async def test_a_resume_that_is_claimed_while_it_is_revoked_is_refused(
    memory: MemoryGridServer, n1: TestNode, n2: TestNode, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The race that matters: the claim was executed before this node heard of the revocation."""
    node = n1 if where == "held" else n2
    name = "reclaim" if where == "held" else "claim"
    claim = getattr(MemorySessionStore, name)
    async with AsyncExitStack() as stack:
        raw, welcome = await opened(stack, n1)

        async def late(self: MemorySessionStore, *arguments: Any, **names: Any) -> Any:
            result = await claim(self, *arguments, **names)
            await revoke(node, PRINCIPAL, "alice")
            # All that follows from it may happen before the answer is taken in.
            for _ in range(10):
                await asyncio.sleep(0)
            return result

        monkeypatch.setattr(MemorySessionStore, name, late)
        assert await refused(node, welcome["token"], attempt=1) == ("revoked", REVOKED)
        await raw.closed()
    await eventually(lambda: not left(memory))


async def test_a_session_whose_credential_was_changed_elsewhere_is_judged_by_the_newest(
    memory: MemoryGridServer, n1: TestNode, n2: TestNode
) -> None:
    """The copy of the node that it comes back to knows the old credential only."""
    async with AsyncExitStack() as stack:
        raw, welcome = await opened(stack, n1)
        held = n1.gateway.node.sessions.get(welcome["session"])
        assert held is not None
        await raw.cut()
        await eventually(lambda: not held.connected)
        grid_node = NodeRef(NodeId("n9"), Incarnation("first"))
        grid = MemoryGrid(memory, node=grid_node)
        await grid.start()
        refreshed = Identity(principal="alice", credential="a-newer-token")
        there = await grid.sessions.claim(
            held.id, by=grid_node, token_generation=held.token_generation, attempt=Attempt(1), identity=refreshed
        )
        assert isinstance(there, Claimed)
        await grid.close()
        await revoke(n2, CREDENTIAL, "a-newer-token")
        await eventually(lambda: n1.gateway.node.revocations.find(CREDENTIAL, "a-newer-token") is not None)
        assert not held.dropped, "it is not known here that it has these credentials"

        assert await refused(n1, welcome["token"], attempt=2) == ("revoked", REVOKED)
        await eventually(lambda: not left(memory))


async def test_a_resume_on_a_node_that_hears_of_it_later_is_closed_then(
    memory: MemoryGridServer, n1: TestNode, n2: TestNode
) -> None:
    """The node is cut off from the news, not from the grid: what it serves meanwhile does not outlive the news."""
    async with AsyncExitStack() as stack:
        raw, welcome = await opened(stack, n1)
        deaf = n2.gateway.node.revocations
        hear = deaf._hear
        gate = asyncio.Event()

        async def late(news: Any) -> None:
            await gate.wait()
            await hear(news)

        deaf._hear = late  # type: ignore[method-assign]  # of this node only
        await revoke(n1, PRINCIPAL, "alice")
        assert await raw.closed() == REVOKED
        # What the first node had begun is done: it may even have ended the session.
        async with RawClient(n2.url) as back:
            answer = await back.resume(welcome["token"], attempt=1)
            gate.set()
            if answer["type"] == "welcome":
                assert await back.closed() == REVOKED
            else:
                assert answer["code"] == "revoked"
    await eventually(lambda: not left(memory))


async def test_what_is_unblocked_may_come_again_but_what_ended_stays_ended(n1: TestNode, n2: TestNode) -> None:
    async with AsyncExitStack() as stack:
        raw, welcome = await opened(stack, n1)
        await revoke(n2, PRINCIPAL, "alice")
        await raw.closed()
        assert await n1.gateway.node.revocations.unblock(PRINCIPAL, "alice")
        assert not await n1.gateway.node.revocations.unblock(PRINCIPAL, "alice")
        await eventually(lambda: n2.gateway.node.revocations.find(PRINCIPAL, "alice") is None)
        await opened(stack, n1)
        await opened(stack, n2)
        assert await refused(n1, welcome["token"]) == ("revoked", REVOKED), "remembered for its window"


async def test_a_revocation_that_is_over_refuses_nobody_and_is_forgotten(
    memory: MemoryGridServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revoking, "FORGET_INTERVAL", 0.01)
    monkeypatch.setattr(revoking, "FORGET_GRACE", 0.0)
    async with running_node("n1", memory=memory) as n1, running_node("n2", memory=memory) as n2:
        await revoke(n1, PRINCIPAL, "alice", until=time.time() + 0.05)
        await revoke(n1, PRINCIPAL, "bob")
        await eventually(lambda: not n1.gateway.node.revocations.is_revoked(principal="alice"))
        async with AsyncExitStack() as stack:
            await opened(stack, n1)
        await eventually(lambda: [each.value for each in memory.data.revocations.all()] == ["bob"])
        tables = [node.gateway.node.revocations for node in (n1, n2)]
        await eventually(lambda: all(len(table.page(limit=9).revocations) == 1 for table in tables))


@pytest.mark.parametrize("later", ["unblocked", "made-anew"])
async def test_a_late_answer_does_not_undo_what_came_after_it(
    memory: MemoryGridServer, n1: TestNode, n2: TestNode, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    """Somebody else changes the same before this node has its answer, and the news of both are faster."""
    add = MemoryRevocationStore.add
    ours, theirs = n1.gateway.node.revocations, n2.gateway.node.revocations

    async def late(self: MemoryRevocationStore, made: Revocation) -> None:
        await add(self, made)
        if made.reason == "ours":
            if later == "unblocked":
                await theirs.unblock(PRINCIPAL, "alice")
            else:
                await theirs.revoke(PRINCIPAL, "alice", reason="theirs")
            known = {"unblocked": None, "made-anew": "theirs"}[later]
            await eventually(lambda: getattr(ours.find(PRINCIPAL, "alice"), "reason", None) == known)

    monkeypatch.setattr(MemoryRevocationStore, "add", late)
    await ours.revoke(PRINCIPAL, "alice", reason="ours")

    for node in (ours, theirs):
        found = node.find(PRINCIPAL, "alice")
        assert (None if found is None else found.reason) == {"unblocked": None, "made-anew": "theirs"}[later]
    assert not ours._changing


async def test_an_unreachable_grid_refuses_to_revoke_and_nothing_is_half_done(
    memory: MemoryGridServer, n1: TestNode, n2: TestNode
) -> None:
    async with AsyncExitStack() as stack:
        raw, _ = await opened(stack, n1)
        memory.go_away()
        with pytest.raises(GridUnavailable):
            await revoke(n2, PRINCIPAL, "alice")
        with pytest.raises(GridUnavailable):
            await n2.gateway.node.revocations.unblock(PRINCIPAL, "alice")
        await raw.send({"type": "ping"})
        await raw.expect("pong")
        memory.come_back()
        await eventually(lambda: not n2.gateway.node.readiness.reasons())
        for node in (n1, n2):
            assert node.gateway.node.revocations.find(PRINCIPAL, "alice") is None
        await revoke(n2, PRINCIPAL, "alice")
        assert await raw.closed() == REVOKED


async def test_sockets_are_closed_though_the_grid_becomes_unreachable_before_the_sessions_are_ended(
    memory: MemoryGridServer, n1: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = MemorySessionStore.end
    failures = 3

    async def failing(self: MemorySessionStore, *arguments: Any, **names: Any) -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise GridUnavailable("not now")
        await end(self, *arguments, **names)

    monkeypatch.setattr(MemorySessionStore, "end", failing)
    async with AsyncExitStack() as stack:
        raws = [(await opened(stack, n1))[0] for _ in range(5)]
        await revoke(n1, PRINCIPAL, "alice")
        assert [await raw.closed() for raw in raws] == [REVOKED] * 5
    await eventually(lambda: not left(memory))
    assert failures < 0


@pytest.mark.parametrize("emptied", [True, False], ids=["emptied", "rolled-back"])
async def test_a_grid_that_forgot_is_told_again(
    memory: MemoryGridServer, n1: TestNode, n2: TestNode, *, emptied: bool
) -> None:
    before = memory.snapshot()
    await revoke(n1, PRINCIPAL, "alice", reason="kept")
    await eventually(lambda: n2.gateway.node.revocations.find(PRINCIPAL, "alice") is not None)

    memory.come_back(emptied=emptied, snapshot=None if emptied else before)

    await eventually(lambda: [each.reason for each in memory.data.revocations.all()] == ["kept"])
    await eventually(lambda: not n1.gateway.node.readiness.reasons() and not n2.gateway.node.readiness.reasons())
    async with running_node("n3", memory=memory) as n3:
        for node in (n1, n2, n3):
            assert node.gateway.node.revocations.is_revoked(principal="alice")


async def test_a_node_serves_nobody_before_it_knows_whom_to_refuse(
    memory: MemoryGridServer, n1: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        raw, welcome = await opened(stack, n1)
        await raw.cut()
        n1.gateway.node.revocations.loaded = False
        assert any("revoked" in reason for reason in n1.gateway.node.readiness.reasons())
        assert await refused(n1, welcome["token"]) == ("grid_unavailable", 4100)
        async with RawClient(n1.url) as early:
            await early.send({"type": "hello", "principal": "alice"})
            assert (await early.expect("error"))["code"] == "grid_unavailable"


async def test_a_session_is_revoked_for_no_longer_than_its_tokens_live(n1: TestNode) -> None:
    revocations = n1.gateway.node.revocations
    life = n1.gateway.node._context.parameters.token_life
    before = time.time()
    assert (await revocations.revoke(PRINCIPAL, "for-ever")).until is None
    assert (await revocations.revoke(CREDENTIAL, "a-token-id")).until is None
    ends = [
        (await revocations.revoke(SESSION, "one")).until,
        (await revocations.revoke(SESSION, "two", until=time.time() + 2 * life)).until,
    ]
    for end in ends:
        assert end is not None
        assert before + life <= end <= time.time() + life
    soon = time.time() + 5
    assert (await revocations.revoke(SESSION, "three", until=soon)).until == soon


async def test_what_cannot_be_revoked_is_told(n1: TestNode) -> None:
    for kind in RevocationKind:
        for value in ("", "x" * 257, "two\nlines", "\u202e", "\ud800"):
            with pytest.raises(InvalidRevocation, match="the value"):
                await revoke(n1, kind, value)
        for reason in ("x" * 201, "two\nlines"):
            with pytest.raises(InvalidRevocation, match="the reason"):
                await revoke(n1, kind, "fine", reason=reason)
        with pytest.raises(InvalidRevocation, match="has passed already"):
            await revoke(n1, kind, "fine", until=time.time() - 1)
    assert not n1.gateway.node.revocations.page(limit=9).revocations


async def test_no_more_than_the_limit_are_revoked(memory: MemoryGridServer) -> None:
    async with running_node("n1", memory=memory, limit_revocations=3) as node:
        for number in range(3):
            await revoke(node, PRINCIPAL, str(number))
        with pytest.raises(TooManyRevocations, match="limit_revocations"):
            await revoke(node, PRINCIPAL, "one too many")
        await revoke(node, PRINCIPAL, "2", reason="the same again")
        await node.gateway.node.revocations.unblock(PRINCIPAL, "0")
        await revoke(node, PRINCIPAL, "room again")


async def test_the_list_comes_in_pages(n1: TestNode) -> None:
    for number in range(7):
        await revoke(n1, PRINCIPAL if number % 2 else SESSION, f"v{number}")
    revocations = n1.gateway.node.revocations
    page = revocations.page(limit=3)
    seen = [each.name for each in page.revocations]
    while page.after is not None:
        page = revocations.page(limit=3, after=page.after)
        seen += [each.name for each in page.revocations]
    assert seen == [*(f"principal:v{n}" for n in (1, 3, 5)), *(f"session:v{n}" for n in (0, 2, 4, 6))]


async def test_revocations_are_counted_by_kind(n1: TestNode) -> None:
    await revoke(n1, PRINCIPAL, "a")
    await revoke(n1, PRINCIPAL, "b")
    await revoke(n1, CREDENTIAL, "c")
    text = n1.gateway.metrics.render().decode()
    for line in ('kind="principal"} 2.0', 'kind="credential"} 1.0', 'kind="session"} 0.0'):
        assert f"gateway_revocations{{{line}" in text
