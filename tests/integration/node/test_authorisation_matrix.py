"""Every permission on every way back: a right that was withdrawn meanwhile is gone, one that was not works (P2).

Rows are permissions, columns are ways in which a session goes on. In each case a session has two rights and uses both,
one of them is withdrawn on both nodes, the session goes on, and then it may do what it still may and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.core.policy.permissions import Policy, Role, parse_template
from gateway.core.types import SessionId, TopicPath
from gateway.ports import Credentials, GridState, Identity, SessionRecord
from tests.support.nodes import TestNode, declare_queues, eventually, running_node
from tests.support.raw_client import Packet, RawClient
from tests.support.times import time_limit

pytestmark = pytest.mark.promise("P2")

NO_BUFFERS: Final = 9007199254740991
"""What a client says whose buffers are gone (protocol 5.4.4)."""


JOBS: Final = "a/jobs"
"""The queue of the rights to send and to consume."""

SUPPORTS: Final = ["queues", "questions"]
"""What the session names, so that it may use all of its rights."""


@dataclass(frozen=True)
class Right:
    """A permission, and how it is used.

    Attributes:
        role: what gives it.
        selector: what the session selects by it; None if it is about something else.
        topic: to which the feed publishes what it selects, or to which it publishes.
        request: uses it.
    """

    role: Role
    topic: str
    request: dict[str, Any]
    selector: str | None = None


def selecting(permitted: str, selector: str, topic: str) -> Right:
    request = {"type": "subscribe", "selector": selector}
    return Right(Role(select=(parse_template(permitted),)), topic, request, selector)


RIGHTS: Final = {
    "select-literal": selecting("a/x", "a/x", "a/x"),
    "select-wildcard": selecting("a/**", "a/*/y", "a/x/y"),
    "select-own": selecting("users/${principal}/**", "users/alice/**", "users/alice/x"),
    "select-vouched": selecting("teams/${principal.team}/*", "teams/fx/*", "teams/fx/x"),
    "publish": Right(
        Role(publish=(parse_template("a/**"),)), "a/x", {"type": "publish", "topic": "a/x", "value": "by right"}
    ),
    "properties": Right(Role(properties=frozenset({"desk"})), "a/x", {"type": "properties", "set": {"desk": "rates"}}),
    "send": Right(Role(send=(parse_template("a/**"),)), "a/x", {"type": "send", "queue": JOBS, "value": "by right"}),
    "consume": Right(
        Role(consume=(parse_template("a/**"),)), "a/x", {"type": "consume", "queue": JOBS, "credit": 4, "mode": "each"}
    ),
    "handle": Right(
        Role(handle=(parse_template("a/**"),)), "a/x", {"type": "handle", "selector": "a/**", "concurrency": 4}
    ),
    "presence": Right(
        Role(presence=(parse_template("a/**"),)),
        "a/x",
        {"type": "subscribe", "selector": "$presence/a/x/$count"},
        "$presence/a/x/$count",
    ),
}

KEPT: Final = Role(
    select=(parse_template("kept/**"),),
    publish=(parse_template("kept/**"),),
    properties=frozenset({"kept"}),
)


def policy(right: Right | None) -> Policy:
    roles = {"kept": KEPT, "feed": Role(publish=(parse_template("**"),))}
    if right is not None:
        roles["right"] = right.role
    return Policy(roles, default=["kept", *(["right"] if right else [])], principals={"feed": ["feed"]})


@dataclass
class Case:
    """One cell: two nodes, the session, and what it has seen."""

    memory: MemoryGridServer
    n1: TestNode
    n2: TestNode
    right: Right
    raw: RawClient
    welcome: Packet = field(default_factory=dict)
    sent: int = 0
    requests: int = 0
    received: int = 0

    async def open(self) -> None:
        await self.raw.connect()
        properties = {"desk": "fx"} if self.may_set_desk else {}
        self.welcome = await self.raw.hello(properties=properties, supports=SUPPORTS)
        await self.promised({"type": "subscribe", "selector": "kept/**"})
        await self.promised(self.right.request)

    @property
    def may_set_desk(self) -> bool:
        return "desk" in self.right.role.properties

    async def ask(self, request: dict[str, Any]) -> Packet:
        self.sent += 1
        self.requests += 1
        await self.raw.send({"id": self.sent, "request": self.requests, "received": self.last_received, **request})
        number = self.requests
        return await self.raw.expect("reply", where=lambda reply: reply["request"] == number)

    async def promised(self, request: dict[str, Any]) -> None:
        reply = await self.ask(request)
        assert "error" not in reply, reply

    @property
    def last_received(self) -> int:
        numbered = [packet["id"] for packet in self.raw.seen if "id" in packet]
        return max(numbered, default=self.received)

    async def leave(self) -> None:
        self.received = self.last_received
        await self.raw.cut()
        session = SessionId(self.welcome["session"])
        for node in (self.n1, self.n2):
            held = node.gateway.node.sessions.get(session)
            await eventually(lambda held=held: held is None or not held.connected)  # type: ignore[misc]

    async def come_back(self, node: TestNode, *, attempt: int = 1, buffers: bool = True) -> Packet:
        self.raw = RawClient(node.url)
        await self.raw.connect()
        self.welcome = await self.raw.resume(
            self.welcome["token"],
            attempt=attempt,
            received=self.received if buffers else 0,
            oldest=self.sent + 1 if buffers else NO_BUFFERS,
            supports=SUPPORTS,
        )
        assert self.welcome["type"] == "welcome", self.welcome
        if self.welcome["outcome"] == "failed_over":
            self.sent = self.received = 0
        return self.welcome

    async def withdraw(self) -> None:
        """Withdraw the right on both nodes, and wait until they have looked at all their sessions."""
        for node in (self.n1, self.n2):
            node.gateway.node.authorisation.reload(policy(None))
        for node in (self.n1, self.n2):
            authorisation = node.gateway.node.authorisation
            await eventually(lambda authorisation=authorisation: not authorisation._reviewing)  # type: ignore[misc]

    async def feed(self, value: str, *, node: TestNode | None = None) -> None:
        """Publish to the topic of the right, and to one that may be received in any case."""
        async with RawClient((node or self.n2).url) as feed:
            await feed.hello("feed")
            for number, topic in enumerate((self.right.topic, "kept/x"), start=1):
                packet = {"id": number, "request": number, "type": "publish", "topic": topic, "value": value}
                await feed.send(packet)
                reply = await feed.expect("reply")
                assert "error" not in reply, reply

    async def nothing_is_left(self) -> None:
        """Wait until the session neither consumes nor handles anything, as the grid knows it."""
        async with time_limit(5.0):
            while (  # noqa: ASYNC110 - it is the grid that changes
                await self.n2.gateway.node._context.grid.queues.consumers(TopicPath(JOBS))
                or f"handler {self.welcome['session']}" in self.memory._data.exchanges.inventory()
            ):
                await asyncio.sleep(0.005)

    async def record(self) -> SessionRecord | None:
        return await self.n2.gateway.node._context.grid.sessions.find(SessionId(self.welcome["session"]))


class Vouching:
    """Believes everybody, and vouches for the team of each."""

    async def authenticate(self, credentials: Credentials) -> Identity:
        return Identity(principal=credentials.principal, properties={"team": "fx"})


Way = Callable[[Case], Awaitable[TestNode]]


async def connected(case: Case) -> TestNode:
    """No way back: the connection stays."""
    await case.feed("before")
    await case.withdraw()
    return case.n1


async def reattach(case: Case) -> TestNode:
    await case.leave()
    await case.feed("before")
    await case.withdraw()
    await case.feed("meanwhile")
    assert (await case.come_back(case.n1))["outcome"] == "reattached"
    return case.n1


async def gap(case: Case) -> TestNode:
    await case.leave()
    await case.feed("before")
    await case.withdraw()
    welcome = await case.come_back(case.n1, buffers=False)
    assert (welcome["outcome"], welcome["reason"]) == ("failed_over", "gap")
    return case.n1


async def reattach_before_the_review(case: Case) -> TestNode:
    """The client comes back before the node has come to look at its session."""
    await case.leave()
    await case.feed("before")
    for node in (case.n1, case.n2):
        node.gateway.node.authorisation._policy = policy(None)
    assert (await case.come_back(case.n1))["outcome"] == "reattached"
    await case.withdraw()
    return case.n1


async def other_node(case: Case) -> TestNode:
    await case.leave()
    await case.feed("before")
    await case.withdraw()
    assert (await case.come_back(case.n2))["outcome"] == "failed_over"
    return case.n2


async def other_node_that_alone_knows(case: Case) -> TestNode:
    """The first node still has the old policy and is killed with it: nobody has changed the session's record."""
    await case.leave()
    await case.feed("before")
    case.n2.gateway.node.authorisation.reload(policy(None))
    welcome = await case.come_back(case.n2)
    assert welcome["outcome"] == "failed_over"
    assert welcome.get("withdrawn") == ([case.right.selector] if case.right.selector else None)
    case.n1.gateway.node.authorisation.reload(policy(None))
    return case.n2


async def and_back_again(case: Case) -> TestNode:
    """A node that has held the session before holds an old list in its index."""
    await other_node_that_alone_knows(case)
    await case.leave()
    assert (await case.come_back(case.n1, attempt=2))["outcome"] == "failed_over"
    return case.n1


async def without_the_grid(case: Case) -> TestNode:
    await case.leave()
    await case.feed("before")
    case.memory.go_away()
    await eventually(lambda: case.n1.gateway.node._context.grid.state is not GridState.UP)
    await case.withdraw()
    assert (await case.come_back(case.n1))["outcome"] == "reattached"
    case.memory.come_back()
    await see_the_grid(case)
    return case.n1


async def drained(case: Case) -> TestNode:
    await case.raw.send({"type": "ack", "received": case.last_received})  # with nothing open it goes at once
    drain = asyncio.create_task(case.n1.gateway.drain())
    await case.raw.expect("go-away")
    await case.withdraw()
    await case.leave()
    assert (await case.come_back(case.n2))["outcome"] == "failed_over"
    await drain
    return case.n2


async def grid_emptied(case: Case) -> TestNode:
    await case.leave()
    await case.feed("before")
    case.memory.go_away()
    await eventually(lambda: case.n1.gateway.node._context.grid.state is not GridState.UP)
    await case.withdraw()
    case.memory.come_back(restarted=True, emptied=True)
    await see_the_grid(case)
    assert (await case.come_back(case.n2))["outcome"] == "failed_over"
    return case.n2


async def grid_rolled_back(case: Case) -> TestNode:
    """The grid forgets that something was withdrawn, and the node that knew it is not there any more."""
    snapshot = case.memory.snapshot()
    await case.withdraw()
    await case.leave()
    case.memory.go_away()
    await case.n1.gateway.close()
    case.memory.come_back(restarted=True, snapshot=snapshot)
    await eventually(lambda: case.n2.gateway.node._context.grid.state is GridState.UP)
    assert (await case.come_back(case.n2))["outcome"] == "failed_over"
    return case.n2


async def see_the_grid(case: Case) -> None:
    session = SessionId(case.welcome["session"])
    for node in (case.n1, case.n2):
        await eventually(lambda node=node: node.gateway.node._context.grid.state is GridState.UP)  # type: ignore[misc]
    held = case.n1.gateway.node.sessions.get(session)
    await eventually(lambda: held is None or not case.n1.gateway.node._store.must_restore(held))


WAYS: Final[list[Way]] = [
    connected,
    reattach,
    reattach_before_the_review,
    gap,
    other_node,
    other_node_that_alone_knows,
    and_back_again,
    without_the_grid,
    drained,
    grid_emptied,
    grid_rolled_back,
]


@pytest.fixture
async def case(request: pytest.FixtureRequest) -> AsyncIterator[Case]:
    right = RIGHTS[request.param]
    memory = MemoryGridServer()
    async with running_node("n1", memory=memory) as n1, running_node("n2", memory=memory) as n2:
        for node in (n1, n2):
            first_packets = node.gateway.node.connections._first_packets
            first_packets._hello_handler._authentication._authenticator = Vouching()
            node.gateway.node.authorisation.reload(policy(right))
            await eventually(lambda node=node: not node.gateway.node.authorisation._reviewing)  # type: ignore[misc]
        await declare_queues(n1, JOBS)
        await eventually(lambda: len(n2.gateway.node.destinations.table) == 1)
        case = Case(memory, n1, n2, right, RawClient(n1.url))
        await case.open()
        yield case
        await case.raw.cut()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("case", RIGHTS, indirect=True)
async def test_a_right_withdrawn_is_gone_and_the_others_work(case: Case, way: Way) -> None:
    node = await way(case)

    # What it selects: here, at the client, and in the grid.
    selector = case.right.selector
    kept = ["+kept/**"]
    held = node.gateway.node.sessions.get(SessionId(case.welcome["session"]))
    assert held is not None
    assert list(held.selections.to_wire()) == kept
    assert list(node.gateway.node.sessions.delivery.in_force(held).to_wire()) in (kept, [])  # before it is activated
    if way is not connected:
        assert case.welcome["selections"] == kept
    await eventually_in_the_grid(case, kept)

    # What it asks for.
    reply = await case.ask(case.right.request)
    assert reply["error"]["code"] == "forbidden", reply
    await case.nothing_is_left()
    await case.promised({"type": "publish", "topic": "kept/y", "value": "mine"})
    await case.promised({"type": "properties", "set": {"kept": "yes"}})
    await case.promised({"type": "subscribe", "selector": "kept/y"})

    # What it is sent: everything that it may be, and nothing else, even if it was published before.
    await case.feed("after")
    await case.raw.expect("update", where=lambda update: update["topic"] == "kept/x" and update["value"] == "after")
    seen = case.raw.seen if way is not connected else after_the_notice(case)
    assert {packet["topic"] for packet in seen if packet["type"] == "update"} <= {"kept/x", "kept/y"}
    if selector and way is not grid_rolled_back and way is not drained:
        told = [packet for packet in case.raw.seen if packet.get("code") == "permissions_withdrawn"]
        if way in {connected, reattach, reattach_before_the_review, without_the_grid, other_node_that_alone_knows}:
            assert [(each["withdrawn"], each["selections"]) for each in told] == [([selector], kept)]
    # No number is missing, whatever was taken out.
    numbers = [packet["id"] for packet in case.raw.seen if "id" in packet]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


async def eventually_in_the_grid(case: Case, expected: list[str]) -> None:
    async with time_limit(5.0):
        while (record := await case.record()) is None or list(record.selections) != expected:  # noqa: ASYNC110 - it is the grid that changes
            await asyncio.sleep(0.005)


def after_the_notice(case: Case) -> list[Packet]:
    if case.right.selector is None:
        return [packet for packet in case.raw.seen if packet.get("topic") != case.right.topic]
    notice = next(n for n, packet in enumerate(case.raw.seen) if packet.get("code") == "permissions_withdrawn")
    return case.raw.seen[notice:]
