"""Signing keys change on three nodes, node by node, under clients that resume on all of them: nobody is refused (P8).

Each node has files of its own. Those that ``gateway keys`` changes are brought to one node after the other, so that
nodes differ in their keys most of the time. The same without the first step is refused, as it must be.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.adapters.tokens import read_unverified
from gateway.core.wire.codes import ErrorCode
from gateway.local.stack import Stack
from tests.cluster.crowds import Figures
from tests.support.faults import eventually
from tests.support.raw_client import Packet, RawClient
from tests.support.seeds import seeded
from tests.support.stack import cluster

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.promise("P8")]

NODES: Final = ("n1", "n2", "n3")

CLIENTS: Final = 8
"""That resume as fast as they are served; on two busy cores some hundred times a second together."""

SITTING: Final = 5
"""That stay connected all the time."""

FILES: Final = ("token-keys", "token-verify-keys")


class Keyring:
    """The files in the place where they are changed, and the copies of each node.

    Args:
        folder: of the test.
    """

    def __init__(self, folder: Path) -> None:
        self._master = folder / "master"
        self._master.mkdir()
        self._folder = folder

    async def command(self, *arguments: str) -> str:
        """Run ``gateway keys``; return what it printed."""
        signing, verifying = (str(self._master / name) for name in FILES)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", "keys", *arguments),
            *("--token-keys-file", signing, "--token-verify-keys-file", verifying),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode().strip()

    def settings(self) -> dict[str, Any]:
        """Settings of nodes of which each reads its own copies."""
        return {f"{name.replace('-', '_')}_file": partial(self._copy, name=name) for name in FILES}

    def copy(self, node: str) -> None:
        """Bring the files to a node, each in one step, those that sign first."""
        (self._folder / node).mkdir(exist_ok=True)
        for name in FILES:
            new = self._folder / node / f"{name}.new"
            shutil.copyfile(self._master / name, new)
            new.replace(self._folder / node / name)

    def spoil(self, node: str) -> None:
        """Leave half a file at a node."""
        (self._folder / node / FILES[0]).write_text("half-a-key")

    def _copy(self, node: str, *, name: str) -> Path:
        return self._folder / node / name

    def secrets(self) -> set[str]:
        """All keys there are now."""
        lines = [line for name in FILES for line in (self._master / name).read_text().splitlines()]
        return {line for line in lines if line and not line.startswith("#")}


class Crowd:
    """Clients that resume again and again, each time on some other node.

    Attributes:
        served: resumes by node.
        refused: refusals by node and reason.
        signed: for each client the key of its newest token.
        over: set to have clients stop after what they are at; cancelled, they would leave connections behind.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._random = seeded("key-rollover")
        self.served: Counter[str] = Counter()
        self.refused: Counter[tuple[str, str]] = Counter()
        self.signed: dict[int, str] = {}
        self.over = False

    async def client(self, number: int) -> None:
        """Resume until it is over, or refused."""
        nodes = self._stack.node_names
        async with RawClient(self._stack.node_url(nodes[number % len(nodes)])) as raw:
            token = (await raw.hello(f"user-{number}"))["token"]
            await raw.send({"type": "ack", "received": 0})
        attempt = 0
        while not self.over:
            node = self._random.choice(nodes)
            attempt += 1
            async with RawClient(self._stack.node_url(node)) as raw:
                answer = await raw.resume(token, attempt=attempt)
                if answer["type"] != "welcome":
                    self.refused[node, answer["code"]] += 1
                    return
                token = answer["token"]
                self.signed[number] = read_unverified(token).key
                self.served[node] += 1
                await raw.send({"type": "ack", "received": 0})

    async def more(self) -> None:
        """Wait until every node has served each client once more, about, or until one was refused."""
        before = self.served.copy()
        await eventually(
            lambda: (
                bool(self.refused)
                or all(self.served[node] >= before[node] + CLIENTS for node in self._stack.node_names)
            ),
            "all nodes serve resumes",
        )

    async def all_hold(self, key: str) -> None:
        """Wait until all clients have tokens of a key, or until one was refused."""
        await eventually(
            lambda: bool(self.refused) or set(self.signed.values()) == {key}, f"every client has a token of key {key}"
        )


@asynccontextmanager
async def crowd(stack: Stack) -> AsyncIterator[Crowd]:
    people = Crowd(stack)
    async with asyncio.TaskGroup() as tasks:
        for number in range(CLIENTS):
            tasks.create_task(people.client(number))
        try:
            yield people
        finally:
            people.over = True


async def reload(stack: Stack, node: str, *, event: str = "keys_reloaded") -> None:
    """Send SIGHUP, and wait until the node has told what came of it."""

    def told() -> int:
        return stack.log_of(node).read_text().count(f'"{event}"')

    before = told()
    os.kill(stack.nodes[node].pid, signal.SIGHUP)
    await eventually(lambda: told() > before, f"{node} says {event}")


@pytest.mark.thorough
async def test_keys_change_under_traffic_and_nobody_is_refused(tmp_path: Path, figures: Figures) -> None:
    keys = Keyring(tmp_path)
    first = await keys.command("create")
    for node in NODES:
        keys.copy(node)
    async with cluster(tmp_path, nodes=len(NODES), balancer=False, **keys.settings()) as stack:
        nodes = stack.node_names
        assert nodes == NODES

        async def roll_out(people: Crowd) -> None:
            for node in random.sample(nodes, len(nodes)):
                keys.copy(node)
                await reload(stack, node)
                await people.more()

        seen = keys.secrets()
        sitting = [RawClient(stack.node_url(node)) for node in nodes for _ in range(SITTING)]
        try:
            for raw in sitting:
                await raw.connect()
                await raw.hello("sitting")
            async with crowd(stack) as people:
                await people.all_hold(first)
                second = await keys.command("create")
                await roll_out(people)
                await people.all_hold(first)
                await keys.command("promote", second)
                await roll_out(people)
                await people.all_hold(second)
                # A file that was not copied to its end changes nothing.
                keys.spoil(nodes[0])
                await reload(stack, nodes[0], event="keys_kept")
                await people.more()
                await keys.command("retire", first, "--force")
                seen |= keys.secrets()
                await roll_out(people)
                served, refused = people.served.copy(), people.refused.copy()
                assert refused == {}
                figures(
                    f"{served.total()} resumes by {CLIENTS} clients on {len(nodes)} nodes while a key was created, "
                    f"promoted and the former one retired, rolled out node by node: {refused.total()} refused"
                )

                # The same with one step less: that clients count refusals, too, is shown by this.
                third = await keys.command("create")
                await keys.command("promote", third)
                keys.copy(nodes[0])
                await reload(stack, nodes[0])
                await eventually(lambda: bool(people.refused), "a node refuses what it cannot verify")
                assert {reason for _, reason in people.refused} == {ErrorCode.TOKEN_KEY_RETIRED}
            assert all([await is_served(raw) for raw in sitting]), "nobody who was connected noticed"
        finally:
            await asyncio.gather(*(raw.cut() for raw in sitting))
        logs = "".join(stack.log_of(node).read_text() for node in nodes)
        assert second in logs
        assert not [key for key in seen | keys.secrets() if key in logs]


async def is_served(raw: RawClient) -> Packet:
    await raw.send({"type": "ping"})
    return await raw.expect("pong")
