"""Either node of a handoff dies at each place where it waits: nothing is lost, nothing comes twice (H1 to H4, P12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.app.cluster.handoff.giver import STEP_SECONDS
from gateway.app.cluster.node_links import Answer
from gateway.client import Recovery, Session, Update, connect
from gateway.core.session.handoff import OFFER, TAKE
from gateway.core.types import NodeRef
from gateway.ports import PublishCommand
from tests.integration.client.cutting_proxy import CuttingProxy
from tests.support.linked_nodes import LinkedNodes
from tests.support.nodes import TestNode, eventually
from tests.support.suspensions import Suspensions
from tests.support.times import scaled, time_limit

pytestmark = pytest.mark.promise("P3", "P5", "P12")

QUICK = {"backoff_initial": 0.01, "backoff_maximum": 0.05, "lease": scaled(60.0), "lease_renew": scaled(0.2)}
"""No lease ends while a test runs: what is tested is what happens before anybody knows that a node is dead."""

LEAST = 5
"""Updates, and publishes, before and after."""

PACE = 0.002
"""Seconds that a publish takes."""


class Scene:
    """A session that is handed over from n1 to n2 under traffic, with n3 to go to.

    Attributes:
        updates: that the client has got of a topic to which somebody else publishes all the time.
        published: values that somebody has published there.
        receipts: versions of what the client itself has published, by its number.
        recoveries: of the client.
    """

    def __init__(self, linked: LinkedNodes, nodes: Sequence[TestNode], proxy: CuttingProxy) -> None:
        self.n1, self.n2, self.n3 = nodes
        self._linked = linked
        self.proxy = proxy
        self.updates: list[Update] = []
        self.published = 0
        self.receipts: dict[int, int] = {}
        self.recoveries: list[Recovery] = []
        self._stopping = False

    def lead_to(self, node: TestNode) -> None:
        """Have the client lose its connection, and come back to another node."""
        self.proxy.target = node.gateway.port
        self.proxy.cut()

    def kill(self, node: TestNode, *, leads: bool = True) -> None:
        """Take a node from the world in this very moment: no byte of it arrives any more, nor at it.

        Args:
            node: which.
            leads: whether the client is led to n3 if it was at the node.
        """
        for other in (self.n1, self.n2, self.n3):
            if other is not node:
                self._linked.network.cut(node.gateway.me, other.gateway.me)
        node.gateway.node._context.grid.cut()  # type: ignore[attr-defined]
        if leads and node is not self.n1:
            self.lead_to(self.n3)

    @asynccontextmanager
    async def traffic(self) -> AsyncIterator[None]:
        """Have both publish until the end of the block."""
        async with (
            connect(f"ws://127.0.0.1:{self.n3.gateway.port}", "bob") as bob,
            connect(self.proxy.url, "alice") as alice,
        ):
            stream = await alice.subscribe("log/**")
            async with asyncio.TaskGroup() as work:
                collecting = [
                    work.create_task(self._collect(stream.__aiter__(), self.updates)),
                    work.create_task(self._collect(alice.recoveries(), self.recoveries)),
                ]
                publishing = [work.create_task(self._publish(bob)), work.create_task(self._ask(alice))]
                yield
                self._stopping = True
                await asyncio.wait(publishing)
                await eventually(lambda: bool(self.updates) and self.updates[-1].value == self.published)
                for each in collecting:
                    each.cancel()

    async def goes_on(self) -> None:
        """Wait until both have got something more."""
        updates, receipts = len(self.updates) + LEAST, len(self.receipts) + LEAST
        await eventually(lambda: len(self.updates) >= updates and len(self.receipts) >= receipts)

    async def _collect(self, found: AsyncIterator[object], into: list) -> None:  # type: ignore[type-arg]
        async for each in found:
            into.append(each)  # noqa: PERF401 - others look at it meanwhile

    async def _publish(self, bob: Session) -> None:
        while not self._stopping:
            self.published += 1
            await bob.publish("log/x", self.published)
            await asyncio.sleep(PACE)

    async def _ask(self, alice: Session) -> None:
        number = 0
        while not self._stopping:
            number += 1
            self.receipts[number] = (await alice.publish("own", number)).version

    def judge(self) -> None:
        """Every update came once and in order, and every publish was executed once, in order."""
        values = [update.value for update in self.updates]
        assert values == list(range(1, self.published + 1))
        assert [update.version for update in self.updates] == values
        assert list(self.receipts.values()) == list(range(1, len(self.receipts) + 1))
        for recovery in self.recoveries:
            assert recovery.outcome in {"handed_over", "reattached", "mirrored"} or recovery.replayed, recovery
            assert recovery.lost == 0, recovery


@asynccontextmanager
async def scene(patch: pytest.MonkeyPatch, **settings: Any) -> AsyncIterator[Scene]:
    linked = LinkedNodes(patch)
    async with linked.run("n1", "n2", "n3", **QUICK, **settings) as nodes, CuttingProxy(nodes[0].gateway.port) as proxy:
        yield Scene(linked, nodes, proxy)


def answers_of(node: TestNode) -> dict[str, Answer]:
    """Return what answers the questions that come to a node, by kind."""
    links = node.gateway.node.links
    assert links is not None
    return links._answers


class LateAnswers:
    """Has publishes of a node executed at once, and from some moment on answered when the session has been asked for.

    Args:
        patch: of the test.
        node: which.
        seconds: after that, until they are answered.

    Attributes:
        under_way: publishes that have been executed and not answered.
        held: whether they are held.
        asked: set when the session has been asked for.
    """

    def __init__(self, patch: pytest.MonkeyPatch, node: TestNode, seconds: float) -> None:
        self.under_way = 0
        self.held = False
        self.asked = asyncio.Event()
        topics = node.gateway.node._context.grid.topics
        execute = topics.publish

        async def publish(commands: Sequence[PublishCommand]) -> object:
            self.under_way += 1
            results = await execute(commands)
            await asyncio.sleep(PACE)
            if self.held:
                await self.asked.wait()
                await asyncio.sleep(seconds)
            self.under_way -= 1
            return results

        patch.setattr(topics, "publish", publish)

    def note(self, answer: Callable[[bytes, NodeRef], Awaitable[bytes]]) -> Answer:
        """Return what answers who asks for the session, and notes that somebody has."""

        async def asked(body: bytes, claimant: NodeRef) -> bytes:
            self.asked.set()
            return await answer(body, claimant)

        return asked


async def handed_over(patch: pytest.MonkeyPatch, victim: str, at: int, answer: float) -> int:
    """Have a session handed over, and a node killed where it waits for the n-th time; returns how often it waited."""
    async with scene(patch) as found:
        late = LateAnswers(patch, found.n1, answer)
        dead = {"giver": found.n1, "taker": found.n2}[victim]
        places = Suspensions(at, lambda: found.kill(dead))
        answers = answers_of(found.n1)
        if victim == "giver":
            patch.setitem(answers, TAKE, late.note(places.watched(answers[TAKE])))
        else:
            patch.setitem(answers, TAKE, late.note(answers[TAKE]))
            resumes = found.n2.gateway.node.connections._first_packets._resume_handler
            patch.setattr(resumes, "_recover", places.watched(resumes._recover))
        async with time_limit(60), found.traffic():
            await found.goes_on()
            await eventually(lambda: late.under_way > 0)
            late.held = True
            found.lead_to(found.n2)
            await eventually(lambda: len(found.recoveries) >= 1)
            await found.goes_on()
        found.judge()
        # Whoever dies before it has given anything is no help; but what it gave is there for the next claim, too.
        is_lost = victim == "giver" and 0 < at <= places.count
        assert [each.outcome for each in found.recoveries] == ["failed_over" if is_lost else "handed_over"]
    return places.count


@pytest.mark.parametrize("answer", [STEP_SECONDS / 3, STEP_SECONDS * 3], ids=["in time", "too late"])
@pytest.mark.parametrize("victim", ["giver", "taker"])
async def test_a_node_that_dies_at_any_await_costs_nothing(victim: str, answer: float) -> None:
    """A publish is under way that was executed, and is answered before the session is frozen, or not."""
    with pytest.MonkeyPatch.context() as patch:
        places = await handed_over(patch, victim, 0, answer)
    assert places >= 2
    for at in range(1, places + 1):
        with pytest.MonkeyPatch.context() as patch:
            await handed_over(patch, victim, at, answer)


NOBODY = 1
"""A port at which nobody listens: who is led there is away."""


async def passed_on(patch: pytest.MonkeyPatch, victim: str, at: int) -> int:
    """Have n1 stop while its client is away, and a node killed where it waits for the n-th time."""
    async with scene(patch) as found:
        dead = {"giver": found.n1, "taker": found.n2}[victim]
        was_killed = asyncio.Event()

        def kill() -> None:
            found.kill(dead, leads=False)
            was_killed.set()

        places = Suspensions(at, kill)
        offers = found.n1.gateway.node._planned_stop._drain._offers
        assert offers is not None
        kind, answers = (TAKE, answers_of(found.n1)) if victim == "giver" else (OFFER, answers_of(found.n2))
        patch.setitem(answers, kind, places.watched(answers[kind]))

        async def only_n2() -> list[NodeRef]:
            return [found.n2.gateway.me]

        patch.setattr(offers, "_staying", only_n2)
        async with time_limit(60), found.traffic():
            await found.goes_on()
            (session,) = [each for each in found.n1.gateway.node.sessions if each.principal == "alice"]
            found.proxy.target = NOBODY
            found.proxy.cut()
            await eventually(lambda: session.on_clock)
            drain = asyncio.create_task(found.n1.gateway.drain())
            killed = asyncio.create_task(was_killed.wait())
            await asyncio.wait([drain, killed], return_when=asyncio.FIRST_COMPLETED)
            for each in (drain, killed):
                each.cancel()
            found.lead_to(found.n3 if dead is found.n2 and was_killed.is_set() else found.n2)
            await eventually(lambda: len(found.recoveries) >= 1)
            await found.goes_on()
        found.judge()
        if not was_killed.is_set():
            assert [(each.outcome, each.node) for each in found.recoveries] == [("reattached", "n2")]
    return places.count


@pytest.mark.parametrize("victim", ["giver", "taker"])
async def test_a_node_that_dies_while_sessions_are_passed_on_costs_nothing(victim: str) -> None:
    """The client is away, and comes back to a node that lives."""
    with pytest.MonkeyPatch.context() as patch:
        places = await passed_on(patch, victim, 0)
    assert places >= 1
    for at in range(1, places + 1):
        with pytest.MonkeyPatch.context() as patch:
            await passed_on(patch, victim, at)
