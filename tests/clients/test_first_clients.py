"""Today's nodes serve the first clients of both languages: their own sources, where the history is at hand.

Elsewhere, as in a shallow clone, what they said is played: ``first_clients/*.json`` holds it, message by message.
``python -m tests.clients.test_first_clients`` records it anew.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from gateway.adapters.memory import MemoryGridServer
from gateway.core.wire.codec import SUBPROTOCOL
from tests.clients.driver import node_environment
from tests.support.linked_nodes import LinkedNodes
from tests.support.nodes import TestNode, running_node
from tests.support.numbering import SESSION_PACKETS, packets_of
from tests.support.raw_client import Packet, RawClient
from tests.support.times import PATIENCE, time_limit

ROOT: Final = Path(__file__).resolve().parents[2]
HERE: Final = Path(__file__).with_name("first_clients")

FIRST: Final = {
    "python": ("7ae08edab98a", ("gateway/__init__.py", "gateway/client", "gateway/core")),
    "javascript": ("3bd384b20961", ("clients/javascript",)),
}
"""The commits with which the clients came, and where they are there."""

Message = tuple[str, str]
"""Who said it, and the text."""


@dataclass
class Recorder:
    """A proxy of WebSockets that writes down what is said.

    Attributes:
        target: URL of the node to which new connections go.
        connections: what was said, and at which node, by connection.
    """

    target: str
    connections: list[tuple[str, list[Message]]] = field(default_factory=list)
    url: str = ""
    _open: list[asyncio.Transport] = field(default_factory=list)

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        client = web.WebSocketResponse(protocols=(SUBPROTOCOL,))
        await client.prepare(request)
        assert isinstance(request.transport, asyncio.Transport)
        self._open.append(request.transport)
        said: list[Message] = []
        self.connections.append((self.target, said))
        async with (
            aiohttp.ClientSession() as http,
            http.ws_connect(self.target, protocols=(SUBPROTOCOL,)) as node,
        ):
            back = asyncio.create_task(self._pump("server", node, client, said))
            await self._pump("client", client, node, said)
            if client.close_code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE:
                back.cancel()
            await asyncio.gather(back, return_exceptions=True)
        return client

    async def _pump(self, who: str, source: Any, sink: Any, said: list[Message]) -> None:
        async for message in source:
            if message.type is WSMsgType.TEXT:
                said.append((who, message.data))
                await sink.send_str(message.data)
        await sink.close(code=source.close_code or 1000)

    def cut(self) -> None:
        """Lose every connection there is."""
        for transport in self._open:
            transport.abort()
        self._open.clear()


@asynccontextmanager
async def recorder(target: str) -> AsyncIterator[Recorder]:
    running = Recorder(target)
    app = web.Application()
    app.router.add_get("/{path:.*}", running.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    running.url = f"ws://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield running
    finally:
        await runner.cleanup()


def sources(language: str, to: Path) -> Path:
    """Take the first client out of the history; skips where there is none."""
    commit, paths = FIRST[language]
    archive = subprocess.run(["git", "archive", commit, *paths], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip("the first clients are not in this clone; what they said is played by the other test")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(to, filter="data")
    return to


async def use(language: str, where: Path, relay: Recorder, nodes: list[TestNode]) -> list[Any]:
    """Have the first client of a language do what its script says; returns what it told."""
    environment = (
        node_environment() if language == "javascript" else {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(where)}
    )
    command = (
        ["node", str(HERE / "client.mjs"), (where / "clients/javascript/src").as_uri(), relay.url]
        if language == "javascript"
        else [sys.executable, str(HERE / "client.py"), relay.url]
    )
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=where, env=environment
    )
    assert process.stdin is not None
    assert process.stdout is not None
    told: list[Any] = []
    moves = iter(nodes)
    try:
        async with time_limit(PATIENCE):
            async for line in process.stdout:
                said = json.loads(line)
                if "waits" in said:
                    relay.target = next(moves).url
                    relay.cut()
                    process.stdin.write(b"\n")
                else:
                    told.append(said)
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return told


EXPECTED: Final = [
    {"version": 1, "seen": [1, {"n": 1}]},
    {"outcome": "reattached", "node": "n1"},
    {"version": 2, "seen": [2, {"n": 2}]},
    {"outcome": "failed_over", "node": "n2"},
    {"version": 3, "seen": [3, {"n": 3}]},
    {"properties": "rates", "refused": "forbidden", "state": "closed"},
]


@asynccontextmanager
async def two_nodes(linking: pytest.MonkeyPatch | None = None) -> AsyncIterator[list[TestNode]]:
    """Run two nodes: as they were in those days, or, where they are to be linked, each with the other as its backup."""
    if linking is not None:
        async with LinkedNodes(linking).run("n1", "n2", backup="auto", mirror="sync") as nodes:
            yield nodes
        return
    memory = MemoryGridServer()
    async with running_node("n1", memory=memory) as n1, running_node("n2", memory=memory) as n2:
        yield [n1, n2]


async def use_with_two_nodes(
    language: str, where: Path, linking: pytest.MonkeyPatch | None = None
) -> tuple[list[Any], list[Any]]:
    """Have a first client work; returns what it told, and what was said on each connection, and at which node."""
    async with two_nodes(linking) as nodes, recorder(nodes[0].url) as relay:
        told = await use(language, where, relay, nodes)
        names = {node.url: node.gateway.me.node for node in nodes}
        return told, [{"node": names[url], "said": said} for url, said in relay.connections]


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("language", FIRST)
async def test_the_first_clients_work_with_nodes_of_today(
    language: str, linked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, _ = await use_with_two_nodes(language, sources(language, tmp_path), monkeypatch if linked else None)
    assert told == EXPECTED


# --- Played -----------------------------------------------------------------------------------------------------------

TIMELESS: Final = SESSION_PACKETS | {"welcome", "error", "bye"}
"""Packets of a server that do not depend on how long something took."""

MEANS: Final = (
    "type",
    "outcome",
    "numbering",
    "selections",
    "request",
    "topic",
    "version",
    "value",
    "snapshot",
    "code",
)
"""Fields of them that are the same each time."""


def summary(packets: list[Packet]) -> list[str]:
    """Say what packets mean to a first client, but for their order, which the protocol leaves open (6.4)."""
    return sorted(
        json.dumps({name: each[name] for name in MEANS if name in each} | {"error": each.get("error", {}).get("code")})
        for each in packets
    )


TOKEN: Final = re.compile(r'"token":"([^"]*)"')


def without_tokens(said: list[Any]) -> list[Any]:
    """Give tokens names: they are secrets, if only those of a test."""
    text = json.dumps(said, indent=1)
    for number, token in enumerate(dict.fromkeys(re.findall(r'\\"token\\":\\"([^"]*)\\"', text)), 1):
        text = text.replace(token, f"token-{number}")
    return list(json.loads(text))


def expected_of(text: str) -> list[Packet]:
    return [each for each in packets_of(text) if each["type"] in TIMELESS]


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("language", FIRST)
async def test_what_the_first_clients_said_is_answered_as_ever(
    language: str, linked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a reattach, a failover and a farewell, byte for byte but for the tokens."""
    recording = json.loads((HERE / f"{language}.json").read_text())
    tokens: dict[str, str] = {}
    async with two_nodes(monkeypatch if linked else None) as nodes:
        urls = {node.gateway.me.node: node.url for node in nodes}
        for connection in recording:
            async with RawClient(urls[connection["node"]]) as raw:
                awaited: list[Packet] = []
                got: list[Packet] = []
                for who, text in [*connection["said"], ("client", "")]:
                    if who == "server":
                        awaited += expected_of(text)
                        continue
                    while len(got) < len(awaited):
                        if (packet := await raw.receive())["type"] in TIMELESS:
                            got.append(packet)
                    for old, new in zip(awaited, got, strict=True):
                        if "token" in old:
                            tokens[old["token"]] = new["token"]
                    if text:
                        await raw.send_text(TOKEN.sub(lambda found: f'"token":"{tokens[found[1]]}"', text))
                assert summary(got) == summary(awaited)


async def record() -> None:
    """Write down what the first clients and today's nodes say to each other."""
    for language in FIRST:
        with TemporaryDirectory() as folder:
            told, said = await use_with_two_nodes(language, sources(language, Path(folder)))
        assert told == EXPECTED, told
        (HERE / f"{language}.json").write_text(json.dumps(without_tokens(said), indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(record())
