"""A reply comes before the answer to what it is of, also where questions of one message are put one after the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.client import Request, connect
from gateway.core.topics.topics import parse_topic, topic_partition
from gateway.ports import GridUnavailable
from tests.support.nodes import QUICK, TestNode, eventually, running_node
from tests.support.raw_client import RawClient
from tests.support.times import scaled

pytestmark = pytest.mark.promise("P5")

_BY_PARTITION: Final = {topic_partition(parse_topic(path), 1): path for path in (f"svc{n}/x" for n in range(99))}

PATHS: Final = tuple(_BY_PARTITION.values())[:30]
"""Each of another partition."""

LONG: Final = scaled(10.0)
"""Seconds for an answer that comes."""

TURNS: Final = 50
"""Of the loop, in which a node that would say something has said it."""


class Scene:
    """A node where a session handles questions of many partitions, and whose last step a test may hold or fail."""

    def __init__(self, node: TestNode) -> None:
        self.url = node.url
        self.asking: Any = node.gateway.node.connections.exchanges._asking
        self.handled: list[str] = []
        self.over: list[int] = []
        over = self.asking.over

        def noted(item: Any) -> None:
            over(item)
            self.over.append(item.number)

        self.asking.over = noted  # type: ignore[method-assign]

    async def answer(self, request: Request) -> Any:
        self.handled.append(request.path)
        return request.path

    async def all_but_the_last(self) -> None:
        """Wait until all other questions are over, and the node has had time to say so."""
        await eventually(lambda: len(self.over) >= len(PATHS) - 1)
        for _ in range(TURNS):
            await asyncio.sleep(0)

    def steps(self, patch: pytest.MonkeyPatch, before_last: Any) -> None:
        """Have something done before the question of the last path is put."""
        ask = self.asking._store.ask

        async def asked(session: Any, partition: int, revision: str, steps: Any) -> Any:
            if partition == topic_partition(parse_topic(PATHS[-1]), 1):
                await before_last()
            return await ask(session, partition, revision, steps)

        patch.setattr(self.asking._store, "ask", asked)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(
            running_node(memory=MemoryGridServer(now=time.monotonic), **(QUICK | {"limit_handlers": 64}))
        )
        found = Scene(node)
        worker = await stack.enter_async_context(connect(node.url, "bob"))
        for path in PATHS:
            await worker.handle(path.replace("x", "**"), found.answer)
        yield found


async def test_each_reply_comes_before_its_answer(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first questions are over before the last one is put."""
    scene.steps(monkeypatch, scene.all_but_the_last)
    seen = await ask_all(scene)
    assert scene.handled[-1] == PATHS[-1]
    assert_in_order(seen)


async def test_also_where_the_grid_is_away_for_the_last_one(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has been put is asked again, and was over meanwhile."""
    failed: list[bool] = []

    async def fail_once() -> None:
        await scene.all_but_the_last()
        if not failed:
            failed.append(True)
            raise GridUnavailable

    scene.steps(monkeypatch, fail_once)
    assert_in_order(await ask_all(scene))
    assert sorted(scene.handled) == sorted(PATHS)


async def test_nothing_is_kept_of_questions_whose_requests_are_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise RuntimeError("a bug")

    scene.steps(monkeypatch, fail)
    async with RawClient(scene.url) as client:
        await client.hello(supports=["questions"])
        await client.send(*asks())
        for _ in PATHS:
            assert (await client.expect("reply"))["error"]["code"] == "internal"
        assert scene.asking._count == 0
        assert not scene.asking._open


async def test_requests_of_one_turn_about_many_paths_are_all_answered(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.steps(monkeypatch, scene.all_but_the_last)
    async with connect(scene.url, "alice") as asker:
        began = time.monotonic()
        answers = await asyncio.gather(*(asker.request(path, timeout=LONG) for path in PATHS))
    assert answers == list(PATHS)
    assert time.monotonic() - began < LONG / 2


def asks() -> list[dict[str, Any]]:
    return [
        {"id": number, "type": "ask", "request": number, "path": path, "timeout": LONG, "value": None}
        for number, path in enumerate(PATHS, 1)
    ]


async def ask_all(scene: Scene) -> list[dict[str, Any]]:
    """Ask about all paths in one message; return what comes of it."""
    async with RawClient(scene.url) as client:
        await client.hello(supports=["questions"])
        await client.send(*asks())
        seen: list[dict[str, Any]] = []
        while len([each for each in seen if each["type"] == "answered"]) < len(PATHS):
            seen.append(await client.receive())
        return seen


def assert_in_order(seen: list[dict[str, Any]]) -> None:
    """Each request has one reply, and one answer behind it."""
    replied = [each["request"] for each in seen if each["type"] == "reply" and "error" not in each]
    answered = [each["ask"] for each in seen if each["type"] == "answered" and each["value"] == PATHS[each["ask"] - 1]]
    assert sorted(replied) == sorted(answered) == list(range(1, len(PATHS) + 1))
    place = {(each["type"], each.get("request") or each.get("ask")): n for n, each in enumerate(seen)}
    assert all(place["reply", number] < place["answered", number] for number in replied)
