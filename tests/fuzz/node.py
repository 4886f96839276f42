"""A node in a process of its own, under watch: log, health, size, and a witness whom nothing may disturb."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from resource import RLIMIT_NOFILE, setrlimit
from typing import Any, Final

import aiohttp
import psutil  # type: ignore[import-untyped]

from gateway.adapters.admin.public_pages import RENDERINGS_PER_SECOND
from gateway.client import Session, connect
from tests.fuzz.engine import Finding
from tests.support.times import scaled

PATIENCE: Final = scaled(60.0)
"""Seconds to wait for anything that must come, on a machine that does other things as well."""

METRICS_PACE: Final = 1 / RENDERINGS_PER_SECOND
"""Seconds before each look at the metrics. A node that is asked more often tells again what it told last."""

PACE: Final = 0.05
"""Seconds between two publishes of the witness."""

HARMLESS: Final = frozenset(
    {
        "development_mode",
        "policy_absent",
        "authentication_refused",
        "slow_consumer_closed",
        "flood_closed",
        "descriptors_short",
        "limit_exceeded",
        "origin_refused",
    }
)
"""Warnings that a client's doing may lead to; an error never is."""

LEEWAY_BYTES: Final = 48 * 1024**2
"""How much larger a process may be than after its warm-up: what allocators keep, cycles of ended sessions that wait for
the collector (``gateway.garbage`` has it come seldom), topics that were published under strange names. In ten minutes,
a leak of some kilobytes per case is more than that."""

SETTINGS: Final[dict[str, str]] = {
    "dev": "true",
    "window_default": "1",
    "window_maximum": "2",
    "token_life": "60",
    "reap_interval": "0.2",
    # No pause of a machine that does other things shall look like a fault of the node.
    "lease": "120",
    "handshake_timeout": "1",
    "origins": "https://app.example",
    "trusted_proxies": "127.0.0.1",
    "limit_message_bytes": "16384",
    "limit_value_bytes": "4096",
    # What is published stays for as long as the stream is long, which has nothing to do with leaks.
    "stream_length": "1000",
    "log_format": "json",
}
"""Of the node: small limits, so that they are met, and short windows, so that sessions end."""


class NodeUnderWatch:
    """A node; make it by ``watched_node``.

    Attributes:
        port: for clients.
        admin_port: the admin port.
    """

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.port = self.admin_port = 0
        self._process = process
        self._folder = folder
        self._read = 0
        self._memory = psutil.Process(process.pid)
        self._base: tuple[int, int] | None = None
        self._heard: list[int] = []
        self._sent = 0
        self._speaker: Session | None = None
        self._witness: Session | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Wait until the node serves, and let the witness begin."""
        await self._until(self._started, "the node has started")
        await self._until(self._serves, "the node serves")
        url = f"ws://127.0.0.1:{self.port}"
        self._speaker, self._witness = await connect(url, "speaker"), await connect(url, "witness")
        updates = await self._witness.subscribe("witness/number")

        async def hear() -> None:
            async for update in updates:
                assert isinstance(update.value, int)
                self._heard.append(update.value)

        async def speak() -> None:
            assert self._speaker is not None
            while True:
                await self._speaker.publish("witness/number", self._sent)
                self._sent += 1
                await asyncio.sleep(PACE)

        self._tasks = [asyncio.create_task(hear()), asyncio.create_task(speak())]

    async def metrics(self) -> dict[str, float]:
        """Ask for its numbers, by name and labels, no more often than it writes them anew: they are of now."""
        await asyncio.sleep(METRICS_PACE)
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"http://127.0.0.1:{self.admin_port}/metrics") as answer,
        ):
            text = await answer.text()
        return {name: float(number) for name, number in re.findall(r"^(\w+(?:\{.*\})?) (\S+)$", text, re.MULTILINE)}

    def memory(self) -> int:
        """Tell how much it holds, in bytes."""
        return int(self._memory.memory_info().rss)

    def log(self) -> str:
        """Everything that it has said so far."""
        return (self._folder / "log").read_text(errors="replace") + self._errors()

    async def look(self) -> None:
        """Look whether it is well.

        Raises:
            Finding: it is dead or deaf, complains of a bug, or the witness was disturbed.
        """
        if self._process.returncode is not None:
            raise Finding(f"the node ended with {self._process.returncode}: {self._errors()[-2000:]}")
        await self._until(self._serves, "the node answers /healthz")
        if "Traceback" in (errors := self._errors()):
            raise Finding(f"a stack trace: {errors[-3000:]}")
        for line in self._new_lines():
            event = json.loads(line)
            if "Traceback" in line or (event["level"] in {"warning", "error"} and event["event"] not in HARMLESS):
                raise Finding(f"the log complains: {line[:3000]}")
        self._check_witness()

    async def settle(self) -> dict[str, float]:
        """Wait until nothing of the cases is left, then compare its size with what it was the first time.

        Returns:
            What was measured.

        Raises:
            Finding: something is left, or it has grown.
        """

        async def alone() -> bool:
            numbers = await self.metrics()
            # Speaker and witness.
            return (
                numbers["gateway_connections"] == 2
                and sum(each for name, each in numbers.items() if name.startswith("gateway_sessions{")) == 2
            )

        await self._until(alone, "all connections and sessions of the cases are gone")
        await self._until(self._caught_up, "the witness has heard everything")
        if self._base is None:
            self._base = (self._memory.memory_info().rss, self._memory.num_fds())
        before = self._base

        async def let_go() -> bool:
            return int(self._memory.num_fds()) <= before[1]

        await self._until(let_go, f"the node holds {before[1]} descriptors, as before")
        memory, descriptors = self._memory.memory_info().rss, self._memory.num_fds()
        if memory > before[0] + LEEWAY_BYTES:
            raise Finding(f"the node grew from {before[0] >> 10} to {memory >> 10} KiB")
        return {
            "memory_before": before[0],
            "memory_after": memory,
            "descriptors": descriptors,
            "witnessed": len(self._heard),
        }

    async def end(self) -> None:
        """Stop the node and who watches it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for session in (self._speaker, self._witness):
            if session is not None:
                await session.close()
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def _started(self) -> bool:
        if self._process.returncode is not None:
            raise Finding(f"the node did not start: {self._errors()}")
        for line in self._new_lines():
            event = json.loads(line)
            if event["event"] == "node_started":
                self.port, self.admin_port = (int(event[name].rpartition(":")[2]) for name in ("listen", "admin"))
        return self.port != 0

    async def _serves(self) -> bool:
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE)) as http,
                http.get(f"http://127.0.0.1:{self.admin_port}/healthz") as answer,
            ):
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def _caught_up(self) -> bool:
        return bool(self._heard) and self._heard[-1] >= self._sent - 1

    def _check_witness(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled():
                raise Finding(f"the witness was disturbed: {task.exception()!r}")
        if self._heard != list(range(self._heard[0], self._heard[0] + len(self._heard))) if self._heard else False:
            raise Finding("the witness heard numbers out of order, or missed some")
        assert self._witness is not None
        if self._witness.state != "connected":
            raise Finding(f"the witness is {self._witness.state}")

    def _new_lines(self) -> list[str]:
        with (self._folder / "log").open("rb") as file:
            file.seek(self._read)
            *whole, _half = file.read().split(b"\n")
        self._read += sum(len(line) + 1 for line in whole)
        return [line.decode() for line in whole if line]

    def _errors(self) -> str:
        return (self._folder / "errors").read_text(errors="replace")

    async def _until(self, condition: Any, what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not await condition():
            if time.monotonic() > end:
                raise Finding(f"not within {PATIENCE:g} s: {what}")
            await asyncio.sleep(0.05)


@asynccontextmanager
async def watched_node(
    folder: Path, descriptors: tuple[int, int] | None = None, /, **settings: str
) -> AsyncIterator[NodeUnderWatch]:
    """Run a node for the length of the block.

    Args:
        folder: for its log.
        descriptors: its soft and hard limit of open files; as many as this process has if they are None.
        settings: besides those of this module.
    """
    environment = {name: text for name, text in os.environ.items() if not name.startswith("GATEWAY_")}
    given = SETTINGS | {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0"} | settings
    environment |= {f"GATEWAY_{name.upper()}": text for name, text in given.items()}
    with (folder / "log").open("wb") as log, (folder / "errors").open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "gateway", "serve"],
            stdout=log,
            stderr=errors,
            env=environment,
            preexec_fn=None if descriptors is None else partial(setrlimit, RLIMIT_NOFILE, descriptors),
        )
    node = NodeUnderWatch(process, folder)
    try:
        await node.begin()
        yield node
    finally:
        await node.end()
