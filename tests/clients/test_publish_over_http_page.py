"""The programs of the how-tos about publishing, sending and following over HTTP, run against a node."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Final

import pytest

from gateway.client import connect
from tests.clients.driver import CLIENT, node_environment
from tests.support.nodes import TestNode, declare_queues, eventually, running_node
from tests.support.times import PATIENCE, time_limit

PAGES: Final = Path(__file__).parents[2] / "docs" / "how-to"
BLOCK: Final = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
PROGRAM: Final = {"sh": ("bash", "-e"), "python": (sys.executable,), "js": ("node",)}
SUFFIX: Final = {"sh": ".sh", "python": ".py", "js": ".mjs"}


async def run(node: TestNode, language: str, text: str, folder: Path) -> str:
    """Run one program of the page against a node; returns what it prints."""
    text = re.sub(r"^gateway admin .*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^curl ", "curl --silent --show-error --fail-with-body --globoff ", text, flags=re.MULTILINE)
    file = folder / f"program{SUFFIX[language]}"
    text = text.replace('"./src/index.js"', json.dumps(str(CLIENT / "src" / "index.js")))
    file.write_text(text.replace("http://127.0.0.1:18000", f"http://127.0.0.1:{node.gateway.port}"))
    process = await asyncio.create_subprocess_exec(
        *PROGRAM[language],
        str(file),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=node_environment(),
    )
    async with time_limit(PATIENCE):
        said, _ = await process.communicate()
    assert process.returncode == 0, f"{text}\n{said.decode()}"
    return said.decode()


@pytest.mark.promise("P5")
async def test_the_programs_of_the_page_run(tmp_path: Path) -> None:
    blocks = BLOCK.findall((PAGES / "publish-over-http.md").read_text())
    assert {language for language, _ in blocks} == set(PROGRAM)
    async with running_node() as node, await connect(node.url, principal="worker") as session:
        await declare_queues(node, "orders/new")
        orders = await session.subscribe("orders/7")
        said = [await run(node, language, text, tmp_path) for language, text in blocks]
        async with time_limit(PATIENCE):
            assert [(await anext(orders)).value for _ in range(2)] == [{"state": "paid"}, {"state": "shipped"}]
            consumer = await session.consume("orders/new")
            assert [(await anext(consumer)).value for _ in range(2)] == [{"order": 7}, {"order": 8}]
    assert any('"value":{"state":"paid"}' in each for each in said), said
    listed = [each for each in said if "prices/acme" in each and "prices/init" in each]
    assert len(listed) == 3, "curl, Python and Node.js have read all values"
    assert all("shipped" in each for each in listed), listed


@pytest.mark.promise("P13")
async def test_the_programs_of_the_page_about_following_run(tmp_path: Path) -> None:
    blocks = BLOCK.findall((PAGES / "follow-over-http.md").read_text())
    assert {language for language, _ in blocks} == set(PROGRAM)
    async with running_node() as node, await connect(node.url, principal="bob") as session:
        await session.publish("prices/acme", 101.5)
        for language, text in blocks:
            folder = tmp_path / language
            folder.mkdir()
            running = asyncio.create_task(run(node, language, text, folder))
            await eventually(lambda: len(node.gateway.node.sessions.readers) == 1)
            await session.publish("prices/init", 99)
            if language != "sh":
                await session.publish("prices/acme", "last")
            said = await running
            assert "101.5" in said, said
            assert "99" in said, said
            await session.publish("prices/acme", 101.5)
            await eventually(lambda: len(node.gateway.node.sessions.readers) == 0)
