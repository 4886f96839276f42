"""Nodes with an admin API, and somebody who asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from gateway.adapters.memory import MemoryGridServer
from gateway.settings.admin_tokens import new_token, tokens_line
from tests.support.nodes import TestNode, running_node


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def kind(self) -> str:
        """Which problem it is."""
        return str(self.body["type"]).rpartition(":")[2]


@dataclass(frozen=True, slots=True)
class Admins:
    """A file of administrators, one for each built-in role.

    Attributes:
        file: to name in the settings.
        tokens: by role.
    """

    file: Path
    tokens: Mapping[str, str]

    @classmethod
    def make(cls, folder: Path) -> Admins:
        """Write the file."""
        tokens = {role: new_token() for role in ("viewer", "operator", "administrator")}
        file = folder / "admins"
        file.write_text("\n".join(tokens_line(f"the-{role}", frozenset({role}), tokens[role]) for role in tokens))
        return cls(file, tokens)


class Asker:
    """Somebody who asks the admin API."""

    def __init__(self, http: aiohttp.ClientSession, admins: Admins) -> None:
        self._http = http
        self._admins = admins

    async def ask(
        self,
        node: TestNode,
        method: str,
        path: str,
        *,
        role: str | None = "administrator",
        headers: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> Answer:
        """Send a request; the path is taken as it is written."""
        said = dict(headers or {})
        if role is not None:
            said["Authorization"] = f"Bearer {self._admins.tokens[role]}"
        url = URL(node.admin + path, encoded=True)
        async with self._http.request(method, url, headers=said, **arguments) as answer:
            text = await answer.read()
            is_json = answer.content_type.endswith("json") and method != "HEAD"
            return Answer(answer.status, dict(answer.headers), await answer.json() if is_json and text else None)

    async def pages(self, node: TestNode, path: str, **query: str) -> list[Any]:
        """Read all pages of a list; returns the items of each."""
        pages: list[Any] = []
        cursor: str | None = None
        while not pages or cursor is not None:
            given = query | ({} if cursor is None else {"cursor": cursor})
            asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in given.items())
            answer = await self.ask(node, "GET", f"{path}?{asked}")
            assert answer.status == 200, answer.body
            pages.append(answer.body["items"])
            cursor = answer.body["cursor"]
        return pages


@dataclass(frozen=True, slots=True)
class Pair:
    """Two nodes of one cluster, and somebody who asks them."""

    n1: TestNode
    n2: TestNode
    asker: Asker
    admins: Admins
    memory: MemoryGridServer


@asynccontextmanager
async def running_pair(folder: Path, **settings: Any) -> AsyncIterator[Pair]:
    """Run two nodes over one in-memory grid."""
    admins, memory = Admins.make(folder), MemoryGridServer()
    async with (
        running_node("n1", memory=memory, admin_tokens_file=admins.file, **settings) as n1,
        running_node("n2", memory=memory, admin_tokens_file=admins.file, **settings) as n2,
        aiohttp.ClientSession() as http,
    ):
        yield Pair(n1, n2, Asker(http, admins), admins, memory)
