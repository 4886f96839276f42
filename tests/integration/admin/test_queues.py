"""Queues and their dead letters, by the admin API and the command line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest

from gateway.client import MessageConsumer, Session, connect
from gateway.core.types import TopicPath
from gateway.ports.queue_administration import DEAD_PAGE, MENDED_MOST
from tests.integration.admin.support import Pair
from tests.integration.admin.test_cli import Terminal, terminal
from tests.support.nodes import eventually
from tests.support.times import time_limit

__all__ = ["terminal"]

pytestmark = pytest.mark.promise("P15")

JOBS = "jobs/render"
URL = "/v1/queues/jobs%2Frender"
PATIENCE = 20


async def declare(pair: Pair, *queues: str) -> None:
    """Say that paths are queues, and wait until both nodes know."""
    for each in queues:
        path = f"/v1/destinations/{quote(each, safe='')}"
        assert (await pair.asker.ask(pair.n1, "PUT", path, json={"kind": "queue"})).status == 200
        for node in (pair.n1, pair.n2):
            table = node.gateway.node.destinations.table
            await eventually(lambda: table.find(TopicPath(each)) is not None)  # noqa: B023 - waited for in this turn


async def reject(consumer: MessageConsumer, count: int) -> None:
    async with time_limit(PATIENCE):
        for _ in range(count):
            await (await anext(consumer)).reject()


@asynccontextmanager
async def dead_letters(pair: Pair, count: int, *values: Any) -> AsyncIterator[Session]:
    """Have so many messages sent and rejected."""
    await declare(pair, JOBS)
    async with connect(pair.n1.url, "alice") as alice:
        for number in range(count):
            value = values[number] if number < len(values) else number
            await alice.send(JOBS, value, headers={"number": str(number)})
        consumer = await alice.consume(JOBS, ack="each")
        await reject(consumer, count)
        await consumer.cancel()
        yield alice


async def test_how_queues_are_is_listed_by_pages(pair: Pair) -> None:
    await declare(pair, "jobs/a", "jobs/b", "other/ä", "third")
    async with connect(pair.n1.url, "alice") as alice, connect(pair.n2.url, "bob") as bob:
        for name in ("jobs/a", "jobs/b", "other/ä", "third"):
            await alice.send(name, "x")
        await alice.send("jobs/a", "y", delay=3600)
        consumer = await bob.consume("third", ack="each")
        async with time_limit(PATIENCE):
            await anext(consumer)
        pages = await pair.asker.pages(pair.n2, "/v1/queues", limit="1")
        found = {each["queue"]: each for page in pages for each in page}
        assert set(found) == {"jobs/a", "jobs/b", "other/ä", "third"}
        assert max(len(page) for page in pages) == 1
        first = found["jobs/a"]
        assert (first["ready"], first["delayed"], first["held"], first["consumers"], first["sent"]) == (1, 1, 0, 0, 2)
        assert first["oldest"] > 0
        assert first["bytes"] > 0
        third = found["third"]
        assert (third["ready"], third["held"], third["consumers"], third["oldest"]) == (0, 1, 1, None)
        assert (await pair.asker.ask(pair.n1, "GET", "/v1/queues/jobs%2Fa", role="viewer")).body == first
        for unknown in ("nothing", "%24tmp-x%2F1"):
            gone = await pair.asker.ask(pair.n1, "GET", f"/v1/queues/{unknown}")
            assert (gone.status, gone.kind) == (404, "queue-unknown")
        bad = await pair.asker.ask(pair.n1, "GET", "/v1/queues/a%2F%2Fb")
        assert (bad.status, bad.kind) == (400, "bad-request")


async def test_dead_letters_are_shown_and_put_back_in_their_places(pair: Pair) -> None:
    async with dead_letters(pair, 3, {"frame": 1}, "x" * 20_000) as alice:
        page = (await pair.asker.ask(pair.n2, "GET", f"{URL}/dead?limit=2")).body
        first, second = page["items"]
        assert (first["reason"], first["deliveries"], first["headers"]) == ("rejected", 0, {"number": "0"})
        assert (first["value"], first["size"]) == ({"frame": 1}, len(b'{"frame":1}'))
        assert (second["value"], second["size"]) == (None, 20_002), "too large to be shown"
        assert first["since"] >= first["sent"] > 0
        (third,) = (await pair.asker.ask(pair.n2, "GET", f"{URL}/dead?limit=2&cursor={page['cursor']}")).body["items"]
        assert third["value"] == 2
        back = {"messages": [third["id"], first["id"], 12345]}
        assert (await pair.asker.ask(pair.n2, "POST", f"{URL}/requeue", json=back, role="operator")).body == {
            "messages": 2
        }
        assert (await pair.asker.ask(pair.n1, "POST", f"{URL}/requeue", json=back)).body == {"messages": 0}, "once"
        assert (await pair.asker.ask(pair.n1, "GET", URL)).body["dead"] == 1
        consumer = await alice.consume(JOBS, ack="each")
        async with time_limit(PATIENCE):
            got = [await anext(consumer) for _ in range(2)]
        assert [each.value for each in got] == [{"frame": 1}, 2], "in their old order"
        await asyncio.gather(*(each.accept() for each in got))
        dropped = await pair.asker.ask(pair.n1, "POST", f"{URL}/drop", json={"messages": [second["id"]]})
        assert dropped.body == {"messages": 1}
        assert (await pair.asker.ask(pair.n1, "GET", f"{URL}/dead")).body == {"items": [], "cursor": None}


async def test_who_may_look_changes_nothing_and_requests_are_bounded(pair: Pair) -> None:
    async with dead_letters(pair, 1):
        assert len((await pair.asker.ask(pair.n1, "GET", f"{URL}/dead", role="viewer")).body["items"]) == 1
        for what in ("requeue", "drop"):
            body = {"messages": [1]}
            assert (await pair.asker.ask(pair.n1, "POST", f"{URL}/{what}", json=body, role="viewer")).status == 403
            for wrong in ([], [0], [1.5], ["1"], [True], list(range(1, MENDED_MOST + 2))):
                answer = await pair.asker.ask(pair.n1, "POST", f"{URL}/{what}", json={"messages": wrong})
                assert (answer.status, answer.kind) == (400, "bad-request"), wrong
            gone = await pair.asker.ask(pair.n1, "POST", f"/v1/queues/none/{what}", json=body)
            assert (gone.status, gone.kind) == (404, "queue-unknown")
        for query in (f"limit={DEAD_PAGE + 1}", "limit=0", "cursor=eA", "cursor=WzAsIngiLG51bGxd"):
            assert (await pair.asker.ask(pair.n1, "GET", f"{URL}/dead?{query}")).status == 400, query
        assert (await pair.asker.ask(pair.n1, "GET", URL)).body["dead"] == 1


async def test_the_command_line_shows_queues_and_mends_them(pair: Pair, terminal: Terminal) -> None:
    assert "There are no queues" in "".join((await terminal.type("queue", "list"))[1:])
    count = DEAD_PAGE + 5
    async with dead_letters(pair, count) as alice:
        await declare(pair, "jobs/other")
        await alice.send("jobs/other", "x")
        assert [each["queue"] for each in await terminal.lines("queue", "list", "--dead")] == [JOBS]
        assert len(await terminal.lines("queue", "list")) == 2
        (shown,) = await terminal.lines("queue", "show", JOBS)
        assert shown["dead"] == count
        assert "jobs/render" in (await terminal.type("queue", "show", JOBS))[1]
        assert "rejected" in (await terminal.type("queue", "dead", JOBS))[1]
        first, *_ = await terminal.lines("queue", "dead", JOBS)
        assert len(await terminal.lines("queue", "dead", JOBS, "--limit", "0")) == count
        code, out, _ = await terminal.type("queue", "drop", JOBS, str(first["id"]), "--yes")
        assert (code, out) == (0, "1 dead letters of jobs/render were dropped\n")
        code, out, _ = await terminal.type("queue", "requeue", JOBS, "--all", "--yes")
        assert (code, out) == (0, f"{count - 1} dead letters of jobs/render were put back\n")
        (shown,) = await terminal.lines("queue", "show", JOBS)
        assert (shown["dead"], shown["ready"]) == (0, count - 1)
        code, out, _ = await terminal.type("queue", "requeue", JOBS, "--all", "--yes")
        assert (code, out) == (0, "0 dead letters of jobs/render were put back\n")
        for wrong in (("--yes",), ("1", "--all", "--yes")):
            code, _, error = await terminal.type("queue", "requeue", JOBS, *wrong)
            assert code == 2
            assert "--all" in error
