"""Both clients against a real node that must close for one of several calls made together (protocol 4.8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from gateway.app.requests.dispatch import Requests
from gateway.app.session.session import Session as HeldSession
from gateway.client import RequestFailed, RequestRefused, connect
from gateway.core.session.pending import Work
from gateway.core.wire.packets import Publish
from tests.clients.driver import Driver
from tests.support.nodes import TestNode, running_node

LARGEST: Final = 4096
"""Bytes of a message that the node takes, though its welcome names more: something else lies about it."""

CALLS: Final = 5


@dataclass
class Outcome:
    """What became of some calls: the version each got or the code of its refusal, and how the session recovered."""

    calls: list[int | str]
    recoveries: list[tuple[str, str | None]] = field(default_factory=list)


Client = Callable[[TestNode, list[tuple[str, Any]]], Awaitable[Outcome]]


async def by_python(node: TestNode, asks: list[tuple[str, Any]]) -> Outcome:
    async def call(topic: str, value: Any) -> int | str:
        try:
            return (await session.publish(topic, value)).version
        except (RequestRefused, RequestFailed) as error:
            return error.code.value

    async with connect(node.url, "alice") as session:
        outcome = Outcome(await asyncio.gather(*(call(topic, value) for topic, value in asks)))
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                async for each in session.recoveries():
                    outcome.recoveries.append((each.outcome, each.reason))
        return outcome


async def by_javascript(node: TestNode, asks: list[tuple[str, Any]]) -> Outcome:
    async with Driver() as client:
        await client.do("connect", urls=[node.url.replace("http", "ws")], options={"principal": "alice"})
        settled = await client.do("settleMany", asks=[{"topic": topic, "value": value} for topic, value in asks])
        outcome = Outcome([each.get("version", each.get("code")) for each in settled])
        outcome.recoveries = [(each["outcome"], each["reason"]) for each in client.events["recovery"]]
        await client.do("close")
        return outcome


@pytest.fixture(params=[by_python, by_javascript], ids=["python", "javascript"])
def client(request: pytest.FixtureRequest) -> Client:
    chosen: Client = request.param
    return chosen


@pytest.fixture
async def node() -> AsyncIterator[TestNode]:
    async with running_node() as running:
        yield running


@pytest.mark.parametrize("culprit", range(CALLS))
async def test_of_several_calls_the_one_that_is_too_large_is_rejected_and_the_others_are_answered(
    node: TestNode, client: Client, culprit: int
) -> None:
    """One reconnect, and each of the others is executed exactly once."""
    node.gateway._clients._message_bytes = LARGEST
    asks = [(f"t/{number}", "x" * 2 * LARGEST if number == culprit else number) for number in range(CALLS)]
    outcome = await client(node, asks)

    assert outcome.calls == ["message_too_big" if number == culprit else 1 for number in range(CALLS)]
    assert outcome.recoveries == [("failed_over", "gap")]


@pytest.mark.parametrize("culprit", [0, 2, CALLS - 1])
async def test_of_several_calls_the_one_that_meets_a_bug_of_the_node_is_rejected_and_the_others_are_answered(
    node: TestNode, client: Client, culprit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = Requests.accept

    def stumble(self: Requests, session: HeldSession, work: Work) -> None:
        if isinstance(work, Publish) and work.topic == "t/bad":
            raise RuntimeError("a bug")
        accept(self, session, work)

    monkeypatch.setattr(Requests, "accept", stumble)
    asks = [("t/bad" if number == culprit else f"t/{number}", number) for number in range(CALLS)]
    outcome = await client(node, asks)

    assert outcome.calls == ["internal" if number == culprit else 1 for number in range(CALLS)]
    assert outcome.recoveries == [("failed_over", "gap")]
