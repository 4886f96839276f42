"""Rights that are withdrawn while they are used: of consumers of queues, and of handlers of questions.

A new policy is for all sessions, and not only for what they ask from then on (threat model, "keeping a right").
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Final

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.app.session.session import Session
from gateway.catalogue.policy_log_events import CONSUMERS_WITHDRAWN
from gateway.core.destinations.reserved import temporary_queue
from gateway.core.policy.permissions import Policy, Role, parse_template
from gateway.core.types import SessionId, TopicPath
from gateway.ports import GridState
from tests.support.nodes import TestNode, declare_queues, eventually, running_node
from tests.support.raw_client import Packet, RawClient
from tests.support.times import time_limit

pytestmark = pytest.mark.promise("P2")

JOBS: Final = "jobs"
CALC: Final = "calc/**"
QUESTION: Final = "calc/1"


def policy(**rights: str) -> Policy:
    """Make a policy: sessions but the feed's have these rights, and may select what is kept."""
    everything = (parse_template("**"),)
    kept = Role(select=(parse_template("kept/**"),), request=everything)
    given = replace(Role(), **{name: (parse_template(text),) for name, text in rights.items()})  # type: ignore[arg-type]
    feed = Role(publish=everything, send=everything, request=everything)
    return Policy(
        {"kept": kept, "given": given, "feed": feed}, default=["kept", "given"], principals={"feed": ["feed"]}
    )


class Client:
    """A session that numbers what it asks."""

    def __init__(self, node: TestNode) -> None:
        self.node = node
        self.raw = RawClient(node.url)
        self.welcome: Packet = {}
        self._asked = self._sent = self._received = 0

    async def open(self, principal: str = "alice") -> None:
        await self.raw.connect()
        self.welcome = await self.raw.hello(principal, supports=["queues", "questions"])

    @property
    def held(self) -> Session:
        session = self.node.gateway.node.sessions.get(SessionId(self.welcome["session"]))
        assert session is not None
        return session

    async def say(self, kind: str, **content: Any) -> int:
        self._asked += 1
        self._sent += 1
        await self.raw.send(
            {"id": self._sent, "request": self._asked, "received": self.received, "type": kind, **content}
        )
        return self._asked

    async def reply(self, request: int) -> Packet:
        return await self.raw.expect("reply", where=lambda reply: reply["request"] == request)

    async def ask(self, kind: str, **content: Any) -> Packet:
        return await self.reply(await self.say(kind, **content))

    async def allowed(self, kind: str, **content: Any) -> Packet:
        reply = await self.ask(kind, **content)
        assert "error" not in reply, reply
        return reply

    async def refused(self, kind: str, **content: Any) -> str:
        reply = await self.ask(kind, **content)
        return str(reply["error"]["code"])

    async def acknowledge(self) -> None:
        await self.raw.send({"type": "ack", "received": self.received})

    async def leave(self) -> None:
        self._received = self.received
        await self.raw.cut()
        await eventually(lambda: not self.held.connected)

    async def come_back(self, node: TestNode, attempt: int = 1) -> Packet:
        self.raw, self.node = RawClient(node.url), node
        await self.raw.connect()
        self.welcome = await self.raw.resume(
            self.welcome["token"],
            attempt=attempt,
            received=self._received,
            oldest=self._sent + 1,
            supports=["queues", "questions"],
        )
        assert self.welcome["type"] == "welcome", self.welcome
        if self.welcome["outcome"] == "failed_over":
            self._sent = self._received = 0
        return self.welcome

    @property
    def received(self) -> int:
        return max([packet["id"] for packet in self.raw.seen if "id" in packet], default=self._received)

    def messages(self) -> list[Any]:
        return [packet["value"] for packet in self.raw.seen if packet["type"] == "message"]


class Scene:
    """Two nodes over one grid, somebody who feeds them, and a session that has rights."""

    def __init__(self, memory: MemoryGridServer, nodes: list[TestNode], clients: list[Client]) -> None:
        self.memory = memory
        self.n1, self.n2 = nodes
        self.alice, self.feed = clients

    async def reload(self, *nodes: TestNode, **rights: str) -> None:
        """Put a policy in force, and wait until all sessions have been looked at."""
        for node in nodes or (self.n1, self.n2):
            node.gateway.node.authorisation.reload(policy(**rights))
            authorisation = node.gateway.node.authorisation
            await eventually(lambda authorisation=authorisation: not authorisation._reviewing)  # type: ignore[misc]

    async def consumers(self, queue: str = JOBS) -> list[str]:
        return list(await self.n1.gateway.node._context.grid.queues.consumers(TopicPath(queue)))

    async def nobody_consumes(self, queue: str = JOBS) -> None:
        async with time_limit(5.0):
            while await self.consumers(queue):  # noqa: ASYNC110 - it is the grid that changes
                await asyncio.sleep(0.005)

    def handlers(self) -> set[str]:
        return {each for each in self.memory._data.exchanges.inventory() if each.startswith("handler ")}


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    memory = MemoryGridServer()
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(running_node(name, memory=memory)) for name in ("n1", "n2")]
        await declare_queues(nodes[0], JOBS, "other")
        await eventually(lambda: len(nodes[1].gateway.node.destinations.table) == 2)
        clients = [Client(nodes[0]), Client(nodes[1])]
        scene = Scene(memory, nodes, clients)
        await scene.reload(consume=JOBS, handle=CALC, select="orders/**")
        for client, principal in zip(clients, ("alice", "feed"), strict=True):
            await client.open(principal)
        yield scene
        for client in clients:
            await client.raw.cut()


async def test_whoever_may_not_consume_any_more_is_given_nothing(scene: Scene) -> None:
    alice = scene.alice
    await alice.allowed("consume", queue=JOBS, credit=10, mode="each")
    await scene.feed.allowed("send", queue=JOBS, value="before")
    held = await alice.raw.expect("message")
    await scene.reload(handle=CALC)
    notice = await alice.raw.expect("notice")
    assert (notice["code"], notice["queues"], notice["withdrawn"]) == ("permissions_withdrawn", [JOBS], [])
    assert notice["message"] == "you may not consume from 'jobs' any more"
    await scene.nobody_consumes()
    await scene.feed.allowed("send", queue=JOBS, value="after")

    assert not alice.held.consumers
    assert await alice.refused("settle", queue=JOBS, messages=[[held["message"], held["delivery"]]]) == "not_held"
    assert await alice.refused("consume", queue=JOBS, credit=10) == "forbidden"
    assert alice.messages() == ["before"]
    (logged,) = scene.n1.log.of(CONSUMERS_WITHDRAWN)
    assert logged == {"session": alice.welcome["session"], "principal": "alice", "queues": [JOBS]}

    await scene.reload(consume=JOBS)
    await alice.allowed("consume", queue=JOBS, credit=10, mode="each")
    assert [(await alice.raw.expect("message"))["value"] for _ in range(2)] == ["before", "after"]
    assert not scene.n1.log.undeclared


async def test_other_consumers_of_the_session_go_on(scene: Scene) -> None:
    alice = scene.alice
    await scene.reload(consume="**")
    await alice.allowed("consume", queue=JOBS, credit=10)
    await alice.allowed("consume", queue="other", credit=10)
    await scene.reload(consume="other")
    assert (await alice.raw.expect("notice"))["queues"] == [JOBS]
    await scene.nobody_consumes()
    await scene.feed.allowed("send", queue="other", value="still")
    assert (await alice.raw.expect("message"))["value"] == "still"


async def test_a_policy_that_leaves_the_right_changes_nothing(scene: Scene) -> None:
    alice = scene.alice
    await alice.allowed("consume", queue=JOBS, credit=10)
    queue = await shared(alice)
    await scene.reload(consume="**", select="**")
    await scene.feed.allowed("send", queue=JOBS, value=1)
    await scene.feed.allowed("publish", topic="orders/1", value=2)
    assert {(await alice.raw.expect("message"))["queue"] for _ in range(2)} == {JOBS, queue}
    assert not [packet for packet in alice.raw.seen if packet["type"] == "notice"]


async def shared(client: Client) -> str:
    """Open a shared subscription, and consume from it."""
    opened = await client.allowed("durable-open", name="d", selector="orders/**", shared=True)
    queue = str(opened["durable"]["queue"])
    await client.allowed("consume", queue=queue, credit=10)
    return queue


async def test_whoever_may_not_select_any_more_is_given_nothing_of_a_shared_subscription(scene: Scene) -> None:
    alice = scene.alice
    queue = await shared(alice)
    await scene.feed.allowed("publish", topic="orders/1", value="before")
    assert (await alice.raw.expect("message"))["value"] == "before"
    await scene.reload(consume="**")
    notice = await alice.raw.expect("notice")
    assert (notice["code"], notice["queues"], notice["withdrawn"]) == ("permissions_withdrawn", [queue], [])
    await scene.nobody_consumes(queue)
    await scene.feed.allowed("publish", topic="orders/2", value="after")
    assert await alice.refused("consume", queue=queue, credit=10) == "forbidden"
    assert alice.messages() == ["before"]


async def test_an_exclusive_subscription_is_read_by_requests_which_are_judged(scene: Scene) -> None:
    alice = scene.alice
    await alice.allowed("durable-open", name="d", selector="orders/**")
    await scene.reload()
    assert await alice.refused("history", selector="orders/**", after={}, earliest=True, limit=10) == "forbidden"


@pytest.mark.parametrize("mode", ["auto", "none"])
async def test_what_is_given_while_the_grid_is_away_is_not_sent(scene: Scene, mode: str) -> None:
    """The right is gone at once; that the session does not consume any more is written when the grid is there."""
    alice = scene.alice
    await alice.allowed("consume", queue=JOBS, credit=10, mode=mode)
    scene.memory.stall()
    await scene.reload(scene.n1)
    assert (await alice.raw.expect("notice"))["queues"] == [JOBS]
    sending = await scene.feed.say("send", queue=JOBS, value="meanwhile")
    scene.memory.flow()
    await scene.feed.reply(sending)
    await scene.nobody_consumes()
    await alice.allowed("subscribe", selector="kept/x")
    assert alice.messages() == []


async def test_who_begins_to_consume_while_the_right_goes_does_not(scene: Scene) -> None:
    alice = scene.alice
    scene.memory.stall()
    request = await alice.say("consume", queue=JOBS, credit=10)
    await eventually(lambda: bool(alice.held.pending))
    await scene.reload(scene.n1)
    scene.memory.flow()
    assert (await alice.reply(request))["error"]["code"] == "forbidden"
    await scene.nobody_consumes()
    assert not alice.held.consumers


async def test_a_right_that_goes_while_the_client_is_away_is_gone_when_it_comes_back(scene: Scene) -> None:
    alice = scene.alice
    await alice.allowed("consume", queue=JOBS, credit=10, mode="each")
    await alice.leave()
    for node in (scene.n1, scene.n2):  # the client is here before the node has come to look at its session
        node.gateway.node.authorisation._policy = policy()
    assert (await alice.come_back(scene.n1))["outcome"] == "reattached"
    assert (await alice.raw.expect("notice"))["queues"] == [JOBS]
    await scene.nobody_consumes()
    await scene.feed.allowed("send", queue=JOBS, value="after")
    await alice.allowed("subscribe", selector="kept/x")
    assert alice.messages() == []


async def test_a_node_that_alone_knows_of_it_gives_back_what_the_session_held(scene: Scene) -> None:
    """The client asks again to consume where it fails over, and is refused: nothing may stay with its session."""
    alice = scene.alice
    await alice.allowed("consume", queue=JOBS, credit=10, mode="each")
    await scene.feed.allowed("send", queue=JOBS, value="held")
    await alice.raw.expect("message")
    await alice.leave()
    await scene.reload(scene.n2)
    assert (await alice.come_back(scene.n2))["outcome"] == "failed_over"
    assert await alice.refused("consume", queue=JOBS, credit=10, mode="each") == "forbidden"
    assert await scene.consumers() == []


async def test_credentials_with_fewer_rights_end_consumers(scene: Scene) -> None:
    alice = scene.alice
    await alice.allowed("consume", queue=JOBS, credit=10)
    authorisation = scene.n1.gateway.node.authorisation
    authorisation._policy = policy()  # what fresh credentials give is judged as what another policy does
    await alice.allowed("authenticate", principal="alice", secret="")
    assert [packet["queues"] for packet in alice.raw.seen if packet["type"] == "notice"] == [[JOBS]]
    await scene.nobody_consumes()


async def test_whoever_may_send_to_any_queue_may_send_to_a_temporary_one(scene: Scene) -> None:
    """Its path follows from what others are told of the session, and it stays with it whatever it may consume."""
    alice = scene.alice
    scene.n1.gateway.node.authorisation.reload(Policy({"r": Role(declare=True)}, default=["r"]))
    queue = (await alice.allowed("declare", temporary=True))["queue"]
    await alice.allowed("consume", queue=queue, credit=10)
    await scene.reload()
    assert queue.rpartition("/")[0] == temporary_queue(SessionId(alice.welcome["session"]), 1).rpartition("/")[0]
    await scene.feed.allowed("send", queue=queue, value="by somebody")
    message = await alice.raw.expect("message")
    assert message["value"] == "by somebody"
    assert not message.keys() & {"principal", "session"}
    assert await alice.refused("send", queue=queue, value="mine") == "forbidden"


async def test_a_temporary_queue_that_was_lost_is_not_made_again_without_the_right(scene: Scene) -> None:
    alice = scene.alice
    scene.n1.gateway.node.authorisation.reload(Policy({"r": Role(declare=True)}, default=["r"]))
    queue = (await alice.allowed("declare", temporary=True))["queue"]
    await alice.allowed("consume", queue=queue, credit=10)
    await scene.reload()
    scene.memory.go_away()
    await eventually(lambda: scene.n1.gateway.node._context.grid.state is not GridState.UP)
    scene.memory.come_back(restarted=True, emptied=True)
    await eventually(lambda: scene.n1.gateway.node._context.grid.state is GridState.UP)
    await eventually(lambda: not alice.held.consumers)
    assert await scene.n1.gateway.node._context.grid.queues.look(TopicPath(queue)) is None


async def question(scene: Scene) -> Packet:
    return await scene.feed.ask("ask", path=QUESTION, value=1, timeout=20.0)


async def test_whoever_may_not_handle_any_more_is_not_registered(scene: Scene) -> None:
    """ADR 0116: what may not be handled any more is not taken, and the partition is told."""
    alice = scene.alice
    await alice.allowed("handle", selector=CALC, concurrency=4)
    assert scene.handlers() == {f"handler {alice.welcome['session']}"}
    await scene.reload()
    await eventually(lambda: scene.handlers() == set())
    assert (await question(scene))["error"]["code"] == "no_handler"

    await scene.reload(handle=CALC)
    await eventually(lambda: scene.handlers() != set())
    assert "error" not in await question(scene)
    asked = await alice.raw.expect("question")
    await alice.allowed("answer", question=asked["question"], value=2)
    assert (await scene.feed.raw.expect("answered"))["value"] == 2


async def test_a_question_that_was_given_as_the_right_went_leaves_no_deaf_handler(scene: Scene) -> None:
    """The node is told of the question when it has another policy, and nobody has looked at the session yet."""
    alice = scene.alice
    await alice.allowed("handle", selector=CALC, concurrency=4)
    handling = scene.n1.gateway.node.connections.exchanges._handling
    permitted = alice.held.permissions
    alice.held.permissions = policy().permissions_of("alice", frozenset(), {})
    assert "error" not in await question(scene)
    exchange = alice.held.exchange
    assert exchange is not None
    (handler,) = exchange.handlers.values()
    await eventually(lambda: handler.told is not None and not handler.told.handling.selectors)
    assert (await question(scene))["error"]["code"] == "no_handler"
    alice.held.permissions = permitted
    handling.rights_changed(alice.held)
    await eventually(lambda: handler.told is not None and bool(handler.told.handling.selectors))
    assert "error" not in await question(scene)
    assert {(await alice.raw.expect("question"))["path"] for _ in range(2)} == {QUESTION}
