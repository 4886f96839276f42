"""``follow`` of the JavaScript client: it reads streams of events of real nodes, and goes on where it was cut."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.local.proxy import FaultProxy
from tests.clients.driver import CLIENT, node_environment
from tests.support.http_calls import call
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.times import PATIENCE, time_limit

PROGRAM: Final = """
import { follow } from %(index)s;

const [url, principal, ...selectors] = process.argv.slice(2);
try {
  for await (const event of follow(url, selectors, { principal, secret: async () => "" })) {
    console.log(JSON.stringify(event));
    if (event.value === "end") break;
  }
  console.log(JSON.stringify({ type: "left" }));
} catch (error) {
  console.log(JSON.stringify({ type: "refused", name: error.name, code: error.code, message: error.message }));
}
"""


@asynccontextmanager
async def following(folder: Path, url: str, *arguments: str) -> AsyncIterator[asyncio.StreamReader]:
    """Run a program that follows; returns what it prints, an event a line."""
    file = folder / "follow.mjs"
    file.write_text(PROGRAM % {"index": json.dumps(str(CLIENT / "src" / "index.js"))})
    process = await asyncio.create_subprocess_exec(
        "node", str(file), url, *arguments, stdout=asyncio.subprocess.PIPE, env=node_environment()
    )
    assert process.stdout is not None
    try:
        async with time_limit(2 * PATIENCE):
            yield process.stdout
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def read(lines: asyncio.StreamReader) -> dict[str, Any]:
    """Read the next event."""
    line = await lines.readline()
    assert line, "the program has ended"
    event: dict[str, Any] = json.loads(line)
    return event


async def publish(node: TestNode, *values: object) -> None:
    items = [{"topic": "ü/a", "value": value} for value in values]
    status, told, _ = await call(node, body={"publish": items})
    assert status == 200, told


@pytest.mark.promise("P13")
async def test_it_goes_on_where_it_was_cut_and_at_the_next_node(tmp_path: Path) -> None:
    grid = MemoryGridServer()
    async with (
        running_node("n1", memory=grid) as one,
        running_node("n2", memory=grid) as two,
        FaultProxy("127.0.0.1", one.gateway.port) as proxy,
        following(tmp_path, f"http://127.0.0.1:{proxy.port}", "alice", "ü/**", "other") as lines,
    ):
        assert (await read(lines))["data"] == {"node": "n1"}
        assert (await read(lines))["type"] == "complete"
        seen = []
        for start in range(0, 30, 10):
            await publish(one, *range(start, start + 5))
            seen += [await read(lines) for _ in range(5)]
            proxy.cut()
            await publish(two, *range(start + 5, start + 10))
            assert (await read(lines))["data"] == {"node": "n1", "replayed": True}
            seen += [await read(lines) for _ in range(5)]
        await publish(one, "end")
        assert (await read(lines))["value"] == "end"
        assert (await read(lines)) == {"type": "left"}
    assert [each["value"] for each in seen] == list(range(30))
    assert all((each["topic"], each["snapshot"], each["folded"]) == ("ü/a", False, 0) for each in seen)
    assert all(each["event"] in each["position"] for each in seen)


async def test_a_drain_leads_it_elsewhere_and_a_refusal_ends_it(tmp_path: Path) -> None:
    async with running_node("n1") as node:
        url = f"http://127.0.0.1:{node.gateway.port}"
        async with following(tmp_path, url, "alice", "$gateway/**") as lines:
            refused = await read(lines)
        assert (refused["name"], refused["code"]) == ("ConnectFailed", "forbidden")
        async with following(tmp_path, url, "alice", "ü/**") as lines:
            await read(lines)
            await read(lines)
            node.gateway.node.begin_drain()
            await eventually(lambda: len(node.gateway.node.sessions.readers) == 0)
            await node.gateway.node.undrain()
            assert (await read(lines))["type"] == "open", "it has come back"
            await publish(node, "end")
            assert (await read(lines))["value"] == "end"
