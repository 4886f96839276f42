"""The JavaScript client asks and answers at real nodes, while connections are cut and nodes change."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from gateway.client import NoHandler, Request, Session, connect
from tests.clients.driver import Refused
from tests.clients.test_javascript_with_nodes import Setting, setting  # noqa: F401 - a fixture
from tests.support.nodes import eventually
from tests.support.times import scaled, time_limit

pytestmark = pytest.mark.promise("P1", "P5")

PATH = "quotes/ACME"
LONG = scaled(20.0)
PATIENCE = 30.0


async def ask(session: Session, value: object) -> Any:
    """Ask until somebody is there who answers."""
    async with time_limit(PATIENCE):
        while True:
            try:
                return await session.request(PATH, value, timeout=LONG)
            except NoHandler:
                await asyncio.sleep(0.01)


async def test_a_javascript_handler_goes_on_over_cuts_and_at_other_nodes(setting: Setting) -> None:  # noqa: F811
    client = setting.client
    await setting.connect()
    await client.do("handle", selector="quotes/**", options={"concurrency": 8}, pause=5)
    async with connect(setting.two.url, principal="bob") as bob:
        for number in range(40):
            asked = asyncio.create_task(ask(bob, number))
            if not number % 10:
                await asyncio.sleep(0)
                setting.first.cut()
                setting.second.cut()
            assert await asked == {"value": number, "by": "alice"}
    asked_of = Counter(each["value"] for each in client.events["request"])
    assert asked_of == Counter(range(40)), "each once, and nothing was registered again"
    assert {each["principal"] for each in client.events["request"]} == {"bob"}
    assert (await client.do("close"))["state"] == "closed"


async def test_a_javascript_client_gets_its_answers_over_cuts_and_at_other_nodes(
    setting: Setting,  # noqa: F811
) -> None:
    client = setting.client
    await setting.connect()
    calls: Counter[Any] = Counter()

    async def answer(request: Request) -> object:
        calls[request.value] += 1
        await asyncio.sleep(0.005)
        return {"value": request.value}

    async with connect(setting.two.url, principal="bob") as bob:
        await bob.handle("quotes/**", answer)
        for number in range(0, 40, 4):
            asked = [
                client.begin("request", path=PATH, value=number + each, options={"timeout": LONG}) for each in range(4)
            ]
            await asyncio.sleep(0)
            setting.first.cut()
            setting.second.cut()
            assert await asyncio.gather(*asked) == [{"value": number + each} for each in range(4)]
    assert calls == Counter(range(40))
    await eventually(lambda: len(client.events["recovery"]) > 0)
    with pytest.raises(Refused, match="NoHandler"):
        await client.do("request", path="nobody/here", value=1, options={})
    assert (await client.do("close"))["state"] == "closed"
