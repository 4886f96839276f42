"""A reader of server-sent events for tests, by the rules of the HTML standard (section 9.2.6)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ssl import SSLContext
from typing import Any
from urllib.parse import urlencode

import aiohttp

from tests.support.http_calls import ALICE


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        kind: its type; ``message`` if it names none.
        data: read as JSON.
        id: the last id that was named, up to here.
    """

    kind: str
    data: Any
    id: str


class EventReader:
    """Reads one stream.

    Args:
        answer: whose body it is.
        last_id: of the stream before.

    Attributes:
        status: of the answer.
        headers: of the answer.
        last_id: the last id that was named.
        retry: milliseconds after which to come back, as the server has said.
        comments: how many have come.
        bare_ids: how often an id came without an event.
    """

    def __init__(self, answer: aiohttp.ClientResponse, last_id: str = "") -> None:
        self._answer = answer
        self.status = answer.status
        self.headers = answer.headers
        self.last_id = last_id
        self.retry: int | None = None
        self.comments = self.bare_ids = 0

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events()

    async def _events(self) -> AsyncIterator[Event]:
        data: list[str] = []
        kind, named = "", self.last_id
        async for raw in self._answer.content:
            line = raw.decode().rstrip("\n")
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not line:
                self.bare_ids += named != self.last_id and not data
                self.last_id = named
                if data:
                    yield Event(kind or "message", json.loads("\n".join(data)), self.last_id)
                kind, data = "", []
            elif not name:
                self.comments += 1
            elif name == "event":
                kind = value
            elif name == "data":
                data.append(value)
            elif name == "id":
                named = value
            elif name == "retry":
                self.retry = int(value)

    async def next(self) -> Event:
        """Return the next event.

        Raises:
            StopAsyncIteration: the stream has ended.
        """
        if not hasattr(self, "_iterator"):
            self._iterator = self._events()
        return await anext(self._iterator)

    async def until(self, kind: str) -> list[Event]:
        """Read up to the next event of a type; returns all of them, it included."""
        found = [await self.next()]
        while found[-1].kind != kind:
            found.append(await self.next())
        return found

    async def problem(self) -> dict[str, Any]:
        """Return why it was refused."""
        told: dict[str, Any] = json.loads(await self._answer.read())
        return told


def address(url: str, selectors: Sequence[str], after: str = "") -> str:
    """Make the URL of a stream.

    Args:
        url: of the gateway, as of WebSockets or of HTTP.
        selectors: which topics.
        after: the parameter of that name; empty for none.
    """
    base = url.replace("ws", "http", 1).removesuffix("/v1/connect")
    query = [*(("selector", each) for each in selectors), *([("after", after)] if after else [])]
    return f"{base}/v1/stream?{urlencode(query)}"


@asynccontextmanager
async def reading(
    url: str,
    *selectors: str,
    after: str = "",
    headers: Mapping[str, str] = ALICE,
    in_url: str = "",
    ssl: SSLContext | bool = True,
) -> AsyncIterator[EventReader]:
    """Read a stream until the end of the block.

    Args:
        url: see ``address``.
        selectors: likewise.
        after: the last id of the stream before.
        headers: of the request.
        in_url: a place that the URL names.
        ssl: whom to trust.
    """
    sent = {**headers, **({"Last-Event-ID": after} if after else {})}
    timeout = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(timeout=timeout) as http,
        http.get(address(url, selectors, in_url), headers=sent, ssl=ssl) as answer,
    ):
        yield EventReader(answer, after)
