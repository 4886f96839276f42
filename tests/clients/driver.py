"""The JavaScript client in a process of Node.js, steered line by line (``clients/javascript/testing/driver.mjs``)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest

CLIENT: Final = Path(__file__).resolve().parents[2] / "clients" / "javascript"
"""The package of the client."""

OLDEST_NODE: Final = (20, 10)
"""The first Node.js that has a WebSocket, if asked for by a flag."""

LINE_BYTES: Final = 16 * 2**20
"""Longest line of the driver."""


def node_environment() -> dict[str, str]:
    """Return the environment in which Node.js runs the client; skips where there is no Node.js, but fails under CI."""
    node = shutil.which("node")
    version: tuple[int, ...] = ()
    if node is not None:
        text = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
        version = tuple(map(int, text.strip().removeprefix("v").split(".")[:2]))
    if version < OLDEST_NODE:
        reason = f"Node.js {OLDEST_NODE[0]}.{OLDEST_NODE[1]} or newer is needed; scripts/system-packages installs it"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"{reason}; CI must not skip tests", pytrace=False)
        pytest.skip(reason)
    # From version 22 on it is there without a flag.
    flags = "--experimental-websocket --no-warnings" if version < (22, 0) else ""
    return {**os.environ, "NODE_OPTIONS": flags}


class Refused(Exception):
    """The client threw something.

    Attributes:
        name: of the error's class.
        code: of the error, if it has one.
    """

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['name']}: {error['message']}")
        self.name = error["name"]
        self.code = error["code"]


class Driver:
    """One client. Use as ``async with Driver() as client``."""

    def __init__(self) -> None:
        self.events: defaultdict[str, list[Any]] = defaultdict(list)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._next = 0

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            "node",
            str(CLIENT / "testing" / "driver.mjs"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=node_environment(),
            limit=LINE_BYTES,
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._reading

    async def do(self, command: str, **given: Any) -> Any:
        """Have the client do something, and wait for what comes of it.

        Raises:
            Refused: the client threw.
        """
        return await self.begin(command, **given)

    def begin(self, command: str, **given: Any) -> asyncio.Future[Any]:
        """Have the client do something without waiting."""
        self._next += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[self._next] = answer
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": self._next, "command": command, **given}).encode() + b"\n")
        return answer

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            said = json.loads(line)
            if "event" in said:
                self.events[said["event"]].append(said["detail"])
                continue
            answer = self._answers.pop(said["id"])
            if answer.done():
                continue
            if "error" in said:
                answer.set_exception(Refused(said["error"]))
            else:
                answer.set_result(said["result"])
        for answer in self._answers.values():
            answer.cancel()
