"""Values reach the gateway, each once, and only what differs (P5)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.app.delivery.feeds import feeds
from gateway.client import connect
from pipeline.errors import PipelineError
from pipeline.publish.publisher import Outcome, Target, publish
from pipeline.publish.topics import MARK, Value
from tests.support.nodes import TestNode, running_node
from tests.support.times import PATIENCE

pytestmark = pytest.mark.promise("P5")

FIRST: dict[str, Value] = {"ops/objective/n1": {"comebacks": 3}, "ops/incidents/death-a": {"sessions": 7}}


@pytest.fixture
async def node() -> AsyncIterator[TestNode]:
    memory = MemoryGridServer(now=time.monotonic, stream_length=100_000, topic_depth=1)
    async with running_node("n1", memory=memory) as running:
        yield running


def target_of(node: TestNode, timeout: float = PATIENCE) -> Target:
    return Target([node.url], "pipeline", None, timeout)


async def below_ops(node: TestNode, least: int) -> dict[str, tuple[object, int]]:
    """Read values and versions, when there are so many."""
    seen: dict[str, tuple[object, int]] = {}
    async with connect(node.url, "reader") as reader:
        async for update in await reader.subscribe("ops/**"):
            seen[update.topic] = (update.value, update.version)
            if len(seen) >= least:
                break
    seen.pop("ops/publishers", None)
    return seen


async def test_what_is_published_can_be_subscribed_to(node: TestNode) -> None:
    assert await publish(FIRST, {"batch": 1}, target_of(node)) == Outcome(published=2, unchanged=0, withdrawn=0)
    values = {topic: value for topic, (value, _) in (await below_ops(node, 4)).items()}
    assert values == {**FIRST, MARK: {"batch": 1}}


async def test_the_same_batch_once_more_publishes_nothing_but_the_mark(node: TestNode) -> None:
    await publish(FIRST, {"batch": 1}, target_of(node))
    before = await below_ops(node, 4)
    assert await publish(FIRST, {"batch": 1}, target_of(node)) == Outcome(published=0, unchanged=2, withdrawn=0)
    after = await below_ops(node, 4)
    assert {topic: after[topic] for topic in FIRST} == {topic: before[topic] for topic in FIRST}


async def test_only_what_differs_is_published_and_what_is_no_more_is_withdrawn(node: TestNode) -> None:
    await publish(FIRST, {"batch": 1}, target_of(node))
    second: dict[str, Value] = {"ops/objective/n1": {"comebacks": 4}, "ops/objective/n2": {"comebacks": 1}}
    assert await publish(second, {"batch": 2}, target_of(node)) == Outcome(published=2, unchanged=0, withdrawn=1)
    values = {topic: value for topic, (value, _) in (await below_ops(node, 5)).items()}
    assert values == {**second, "ops/incidents/death-a": None, MARK: {"batch": 2}}
    assert await publish(second, {"batch": 2}, target_of(node)) == Outcome(published=0, unchanged=2, withdrawn=0)


async def test_many_values_are_published(node: TestNode) -> None:
    many: dict[str, Value] = {f"ops/incidents/{number}": {"number": number} for number in range(1200)}
    assert (await publish(many, {}, target_of(node))).published == 1200
    assert (await publish(many, {}, target_of(node))).unchanged == 1200


async def test_values_that_come_slowly_are_all_known(node: TestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is published meanwhile may come before values that were there."""
    monkeypatch.setattr(feeds, "PORTION_PACKETS", 3)
    many: dict[str, Value] = {f"ops/incidents/{number}": {"number": number} for number in range(300)}
    await publish(many, {}, target_of(node))
    assert await publish(many, {}, target_of(node)) == Outcome(published=0, unchanged=300, withdrawn=0)


async def test_nobody_there_is_told_with_what_to_do() -> None:
    with pytest.raises(PipelineError, match=r"no session after 0\.2 s at ws://127\.0\.0\.1:1; is a node running there"):
        await publish(FIRST, {}, Target(["ws://127.0.0.1:1"], "pipeline", None, 0.2))


def test_a_secret_is_not_shown() -> None:
    assert "hidden" not in repr(Target(["ws://x"], "p", "hidden", 1))
