"""A receiver of hooks over real HTTP that does whatever receivers do: takes, refuses, hangs, redirects, breaks off."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import orjson

from gateway.core.hooks.signing import is_signed

KEY: Final = b"a secret for tests of 32 bytes.!"
"""What requests are signed with."""

_END_OF_HEAD: Final = b"\r\n\r\n"


class HookReceiver:
    """Listens on a free port of the loopback interface.

    Attributes:
        events: that were taken, in order, those that came again included.
        requests: headers of all requests, in lower case.
        answer: what the next requests get: the bytes of a whole answer, or of a part of one.
        takes: whether what comes is taken.
        hangs: whether nothing is answered at all.
        then_closes: whether the connection is closed behind the answer.
        before_answer: awaited when a request was taken, before it is answered; None for nothing.
    """

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.requests: list[dict[str, str]] = []
        self.answer = answer(204)
        self.takes = True
        self.hangs = False
        self.then_closes = False
        self.before_answer: Callable[[], Awaitable[None]] | None = None
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._port = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """Where events are posted."""
        return f"http://127.0.0.1:{self._port}/hook?token=not-to-be-shown"

    @property
    def open(self) -> int:
        """How many connections are open."""
        return len(self._writers)

    @property
    def ids(self) -> list[str]:
        """Ids of all events that were taken."""
        return [each["id"] for each in self.events]

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        """List the events of a type, each once."""
        return list({each["id"]: each for each in self.events if each["type"] == kind}.values())

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Accept nothing any more, and break what is open."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in tuple(self._writers):
            writer.transport.abort()

    def fail(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        """Refuse from now on."""
        self.answer, self.takes = answer(status, headers), False

    def recover(self) -> None:
        """Take from now on."""
        self.answer, self.takes, self.hangs, self.then_closes = answer(204), True, False, False

    def section(self, folder: Path, events: str = '["session_*"]', *, name: str = "crm", more: str = "") -> str:
        """Write a section of a file of hooks, and its secret."""
        (folder / "hook-secret").write_text(f"whsec_{b64encode(KEY).decode()}\n", "utf-8")
        return (
            f'[[hook]]\nname = "{name}"\nurl = "{self.url}"\nevents = {events}\nsecret_file = "hook-secret"\n'
            f'wait = "100ms"\ntimeout = "500ms"\n{more}\n'
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(_END_OF_HEAD)).decode().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in head[1:])}
                body = await reader.readexactly(int(headers["content-length"]))
                self.requests.append(headers)
                signed = int(headers["webhook-timestamp"])
                assert is_signed(headers, body, key=KEY, now=signed)
                if self.hangs:
                    await reader.read()
                    break
                if self.takes:
                    self.events += orjson.loads(body)
                if self.before_answer is not None:
                    await self.before_answer()
                writer.write(self.answer)
                await writer.drain()
                if self.then_closes:
                    break
        self._writers.discard(writer)
        writer.close()


def answer(status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> bytes:
    """Make an answer."""
    lines = [f"HTTP/1.1 {status} Whatever"]
    lines += [f"{name}: {value}" for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
