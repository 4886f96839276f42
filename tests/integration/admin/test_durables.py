"""Durable subscriptions, by the admin API and the command line."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.client import NoSuchDurable, connect
from tests.integration.admin.support import Pair
from tests.integration.admin.test_cli import Terminal, terminal

__all__ = ["terminal"]


async def listed(pair: Pair, limit: str = "2") -> list[Any]:
    pages = await pair.asker.pages(pair.n2, "/v1/durables", limit=limit)
    return [each for page in pages for each in page]


async def test_they_are_listed_by_pages_and_removed(pair: Pair) -> None:
    async with connect(pair.n1.url, "alice") as alice, connect(pair.n2.url, "bob/1") as bob:
        first = await alice.subscribe_durable("one", "log/**")
        for number in range(4):
            await (await alice.subscribe_durable(f"more {number}", "log/a")).close()
        await bob.subscribe_durable("a/b", "log/**", shared=True)
        found = {(each["principal"], each["name"]): each for each in await listed(pair)}
        assert len(found) == 6
        mine = found["alice", "one"]
        assert (mine["session"], mine["until"], mine["shared"]) == (alice.id, None, False)
        assert found["alice", "more 1"]["session"] is None
        assert found["alice", "more 1"]["until"] > found["alice", "more 1"]["made"]
        assert found["bob/1", "a/b"]["shared"]
        for principal, name in (("alice", "one"), ("bob%2F1", "a%2Fb")):
            gone = await pair.asker.ask(pair.n2, "DELETE", f"/v1/durables/{principal}/{name}")
            assert gone.status == 204
            again = await pair.asker.ask(pair.n1, "DELETE", f"/v1/durables/{principal}/{name}")
            assert (again.status, again.kind) == (404, "durable-unknown")
        assert len(await listed(pair)) == 4
        await alice.publish("log/a", 1)
        assert (await anext(first)).value == 1
        with pytest.raises(NoSuchDurable):
            await first.acknowledge()


async def test_a_viewer_looks_and_removes_nothing(pair: Pair) -> None:
    assert (await pair.asker.ask(pair.n1, "GET", "/v1/durables", role="viewer")).body["items"] == []
    assert (await pair.asker.ask(pair.n1, "DELETE", "/v1/durables/a/b", role="viewer")).status == 403


async def test_the_command_line_shows_and_removes_them(pair: Pair, terminal: Terminal) -> None:
    assert "no durable subscriptions" in "".join((await terminal.type("durable", "list"))[1:])
    async with connect(pair.n1.url, "alice") as alice:
        await alice.subscribe_durable("billing", "log/**")
        assert alice.id in (await terminal.type("durable", "list"))[1]
        (found,) = await terminal.lines("durable", "list")
        assert found["name"] == "billing"
        code, out, _ = await terminal.type("durable", "remove", "alice", "billing", "--yes")
        assert (code, out) == (0, "alice has no durable subscription billing any more.\n")
