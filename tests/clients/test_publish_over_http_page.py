"""The programs of the how-tos about publishing, sending and following over HTTP, run against a node."""

from __future__ import annotations

import asyncio
import re
from typing import Final

import pytest

from gateway.client import connect
from tests.clients.page_programs import HOW_TOS, Block, Reader, blocks
from tests.support.nodes import TestNode, declare_queues, eventually, running_node
from tests.support.times import time_limit

LANGUAGES: Final = {"sh", "python", "js"}


async def run(reader: Reader, node: TestNode, block: Block) -> str:
    """Run one program of the page against a node; returns what it prints."""
    text = re.sub(r"^gateway admin .*$", "", block.text, flags=re.MULTILINE)
    text = re.sub(r"^curl ", "curl --silent --show-error --fail-with-body --globoff ", text, flags=re.MULTILINE)
    return await reader.run(block.language, text, node)


@pytest.mark.promise("P5")
async def test_the_programs_of_the_page_run(reader: Reader) -> None:
    found = blocks(HOW_TOS / "publish-over-http.md")
    assert {each.language for each in found} == LANGUAGES
    async with running_node() as node, await connect(node.url, principal="worker") as session:
        await declare_queues(node, "orders/new")
        orders = await session.subscribe("orders/7")
        said = [await run(reader, node, each) for each in found]
        async with time_limit():
            assert [(await anext(orders)).value for _ in range(2)] == [{"state": "paid"}, {"state": "shipped"}]
            consumer = await session.consume("orders/new")
            assert [(await anext(consumer)).value for _ in range(2)] == [{"order": 7}, {"order": 8}]
    assert any('"value":{"state":"paid"}' in each for each in said), said
    listed = [each for each in said if "prices/acme" in each and "prices/init" in each]
    assert len(listed) == 3, "curl, Python and Node.js have read all values"
    assert all("shipped" in each for each in listed), listed


@pytest.mark.promise("P13")
async def test_the_programs_of_the_page_about_following_run(reader: Reader) -> None:
    found = blocks(HOW_TOS / "follow-over-http.md")
    assert {each.language for each in found} == LANGUAGES
    async with running_node() as node, await connect(node.url, principal="bob") as session:
        await session.publish("prices/acme", 101.5)
        for block in found:
            running = asyncio.create_task(run(reader, node, block))
            await eventually(lambda: len(node.gateway.node.sessions.readers) == 1)
            await session.publish("prices/init", 99)
            if block.language != "sh":
                await session.publish("prices/acme", "last")
            said = await running
            assert "101.5" in said, said
            assert "99" in said, said
            await session.publish("prices/acme", 101.5)
            await eventually(lambda: len(node.gateway.node.sessions.readers) == 0)
