"""Either node of a handoff dies at each place where it waits: nothing is lost, nothing comes twice (H1 to H4, P12)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from gateway.app.cluster.handoff.giver import STEP_SECONDS
from gateway.app.cluster.node_links import Answer
from gateway.core.session.handoff import OFFER, TAKE
from gateway.core.types import NodeRef
from gateway.ports import PublishCommand
from tests.integration.client.handoff_scene import NOBODY, PACE, scene
from tests.support.nodes import TestNode, eventually
from tests.support.suspensions import Suspensions
from tests.support.times import time_limit

pytestmark = pytest.mark.promise("P3", "P5", "P12")


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
