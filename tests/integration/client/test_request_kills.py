"""The node of who asks and who handles dies before each step that it takes for a request, and after it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.client import connect
from tests.integration.client.test_requests import ACME, LONG, PATIENCE, QUOTES, ask, scene
from tests.support.times import time_limit

pytestmark = pytest.mark.promise("P1", "P3", "P5")

STEPS = ("ask", "take", "answer", "read", "forget")
"""Of a request, in their order."""


@pytest.mark.parametrize("executed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
async def test_a_request_is_executed_once_whichever_step_its_node_dies_at(
    monkeypatch: pytest.MonkeyPatch, nothing_left_over: None, step: str, *, executed: bool
) -> None:
    async with (
        scene(monkeypatch) as found,
        connect(found.asking.url, "alice") as asker,
        connect(found.handling.url, "bob") as worker,
    ):
        await worker.handle(QUOTES, found.answer)
        await asker.request(ACME, "warm", timeout=LONG)
        exchanges = found.nodes[0].gateway.node._context.grid.exchanges
        real = getattr(exchanges, step)
        died = asyncio.Event()

        async def die(*arguments: Any, **named: Any) -> Any:
            if died.is_set():
                return await real(*arguments, **named)
            died.set()
            if executed:
                await real(*arguments, **named)
            found.kill(0)
            found.lead(found.asking, 1)
            found.lead(found.handling, 2)
            return await real(*arguments, **named)  # which finds no grid any more

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exchanges, step, die)
            answer = await ask(asker, "once")
            assert answer["value"] == "once"
            async with time_limit(PATIENCE):
                await died.wait()
        assert found.calls["once"] == 1
