"""The how-to page's program, run piece by piece against a real node; and the reference page against the code."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import gateway.client
from gateway.client import Notice, Receipt, Recovery, Session, SessionClosed, Update, UpdateStream, connect
from tests.support.nodes import declare_queues, eventually, running_node
from tests.support.times import time_limit

PATIENCE = 20.0
DOCS = Path(__file__).parents[3] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
async def program(nothing_left_over: None) -> AsyncIterator[dict[str, Any]]:
    """Everything the page defines, with the address of a real node."""
    text = (DOCS / "how-to" / "use-from-python.md").read_text()
    async with running_node() as node:
        namespace: dict[str, Any] = {}
        for block in BLOCK.findall(text):
            exec(compile(block, "use-from-python.md", "exec"), namespace)
        namespace["URL"] = node.url
        yield namespace
        loop = namespace["loop"]
        loop.call_soon_threadsafe(loop.stop)
        await eventually(lambda: not loop.is_running())
        loop.close()


async def test_the_pages_program_does_what_the_page_says(program: dict[str, Any]) -> None:
    assert (await program["greet"]()).endswith(" at n1")
    seen: dict[str, object] = {}
    async with connect(program["URL"], "alice") as session:
        following = asyncio.create_task(program["follow"](session, seen))
        watching = asyncio.create_task(program["watch"](session, print))
        assert await program["publish"](session) == 1
        await program["publish_many"](session)
        await eventually(lambda: len(seen) == 4)
        assert await program["read_once"](session) == seen

        async def work(session: Session) -> None:
            await session.close()
            await session.publish("a", 1)

        assert await program["run"](session, work) == "somebody closed it"
        await asyncio.gather(following, watching)
        assert isinstance(session.closed_reason, SessionClosed)


async def test_the_program_of_the_readme_runs_as_it_stands(nothing_left_over: None, tmp_path: Path) -> None:
    """What a newcomer saves and starts, and then publishes to."""
    (text,) = BLOCK.findall((DOCS.parent / "README.md").read_text())
    async with running_node() as node, connect(node.url, "bob") as session:
        file = tmp_path / "prices.py"
        file.write_text(text.replace("ws://127.0.0.1:18000", node.url))
        process = await asyncio.create_subprocess_exec(sys.executable, file, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        try:
            async with time_limit(PATIENCE):
                assert await process.stdout.readline() == b"prices/ACME {'bid': 101}\n"
                await session.publish("prices/ACME", 102)
                assert await process.stdout.readline() == b"prices/ACME 102\n"
        finally:
            process.kill()
            await process.wait()


async def test_a_synchronous_user_gets_by_with_a_few_lines(program: dict[str, Any]) -> None:
    assert await asyncio.to_thread(program["report_once"]) == {"done": True}


@pytest.mark.promise("P16")
async def test_the_worker_of_the_how_to_gives_each_message_one_result(nothing_left_over: None) -> None:
    namespace: dict[str, Any] = {}
    for block in BLOCK.findall((DOCS / "how-to" / "consume-and-publish-atomically.md").read_text()):
        exec(compile(block, "consume-and-publish-atomically.md", "exec"), namespace)
    async with running_node() as node, connect(node.url, "alice") as session, connect(node.url, "worker") as worker:
        await declare_queues(node, "orders/new", "invoices")
        for order in range(20):
            await session.send("orders/new", {"order": order})
        working = asyncio.create_task(namespace["ship_orders"](worker))
        async with time_limit(PATIENCE), await session.consume("invoices") as invoices:
            assert [(await anext(invoices)).value["order"] for _ in range(20)] == list(range(20))
        async with time_limit(PATIENCE), await session.subscribe("orders/19") as orders:
            update = await anext(orders)
        assert (update.value, update.version) == ({"state": "shipped"}, 1)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


def test_the_reference_names_everything_there_is() -> None:
    text = (DOCS / "reference" / "client.md").read_text()
    names = set(gateway.client.__all__) - {"Connecting"}
    for kind in (Update, Receipt, Recovery, Notice):
        names |= {field.name for field in dataclasses.fields(kind)}
    for owner in (Session, UpdateStream):
        names |= {name for name in vars(owner) if not name.startswith("_")} - {"offer", "end", "failed_over"}
    names |= set(inspect.signature(connect).parameters)

    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", text)] == []
