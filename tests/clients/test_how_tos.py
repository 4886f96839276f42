"""The programs of the how-tos and READMEs do what the pages say, with the clients as others install them.

A page's ``python`` and ``js`` blocks are whole programs that are saved and started, or parts of one program, to which a
test adds who calls them. What pages say over HTTP is followed by ``test_publish_over_http_page``, receivers of hooks
by ``tests/integration/hooks``.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.client import NoHandler, Session, Unauthenticated, UpdateStream, connect
from gateway.core.destinations.limits import HistoryLimits
from gateway.local.ports import free_port
from gateway.settings import CallbackUsers, ChainedUsers, JwtUsers
from tests.clients.page_programs import CLUSTER, HOW_TOS, ROOT, Reader, blocks, programs
from tests.support.certificates import Authority
from tests.support.issuers import AUDIENCE, ISSUER, Provider, jwk, token
from tests.support.masters import master_of
from tests.support.nodes import TestNode, declare, declare_queues, eventually, running_node
from tests.support.times import time_limit
from tests.support.wheels import Environment

CLIENTS: Final = {"python": "gateway.client", "js": "session-gateway-client"}
"""What programs import, by language."""

FOLLOWED: Final = {
    "ask-and-answer",
    "authenticate",
    "consume-and-publish-atomically",
    "follow-the-master",
    "go-on-where-you-stopped",
    "leave-a-last-will",
    "let-values-end",
    "see-who-is-there",
    "serve-over-tls",
    "share-work-among-consumers",
    "use-from-javascript",
    "use-from-python",
}
"""Pages with programs that use a client, all of which are followed below."""

ELSEWHERE: Final = {"follow-over-http"}
"""Those of ``test_publish_over_http_page``."""

BOTH: Final = pytest.mark.parametrize("language", ["python", "js"])


async def values(stream: UpdateStream, count: int) -> list[Any]:
    """Wait for the next updates, and return their values."""
    async with time_limit():
        return [(await anext(stream)).value for _ in range(count)]


# --- Pages ------------------------------------------------------------------------------------------------------------


def test_every_page_with_a_client_is_followed() -> None:
    found = set()
    for page in HOW_TOS.glob("*.md"):
        for block in blocks(page):
            assert block.language != "javascript", f"{page.name}: such a block is called js"
            if CLIENTS.get(block.language, "nobody's") in block.text:
                found.add(page.stem)
    assert found == FOLLOWED | ELSEWHERE


def test_no_program_of_a_page_is_called_a_text() -> None:
    """As such it would be followed by nobody."""
    wrong = [
        f"{page.name}: {block.text.splitlines()[0]}"
        for page in HOW_TOS.glob("*.md")
        for block in blocks(page, "text")
        if "await session" in block.text
    ]
    assert wrong == []


def test_what_is_followed_with_is_no_checkout(reading_environment: Environment) -> None:
    where = Path(
        reading_environment.run("python", "-c", "import gateway.client; print(gateway.client.__file__)").strip()
    )
    assert where.is_relative_to(reading_environment.packages)
    assert not (reading_environment.packages / "gateway" / "app").exists()


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "clients" / "python" / "README.md"], ids=["root", "client"]
)
async def test_the_program_of_a_readme_runs_as_it_stands(reader: Reader, page: Path) -> None:
    """What a newcomer saves and starts, and then publishes to."""
    ((_, text),) = blocks(page, "python")
    async with running_node() as node, reader.started("python", text, node) as running:
        assert await running.line() == "prices/ACME {'bid': 101}"
        if page.parent == ROOT:
            async with connect(node.url, "bob") as session:
                await session.publish("prices/ACME", 102)
                assert await running.line() == "prices/ACME 102"
        else:
            assert await running.rest() == ""


USE_FROM_PYTHON: Final = """
async def all_of_it():
    print(await greet())
    seen = {}
    async with connect(URL, "alice") as session:
        following = asyncio.create_task(follow(session, seen))
        watching = asyncio.create_task(watch(session, print))
        assert await publish(session) == 1
        await publish_many(session)
        while len(seen) < 4:
            await asyncio.sleep(0.01)
        assert await read_once(session) == seen

        async def work(session):
            await session.close()
            await session.publish("a", 1)

        print(await run(session, work))
        await asyncio.gather(following, watching)


asyncio.run(all_of_it())
print(report_once())
"""
"""Calls all that the page defines."""


async def test_use_from_python(reader: Reader) -> None:
    page = "\n".join(programs("use-from-python", "python"))
    async with running_node() as node:
        said = await reader.run("python", page + USE_FROM_PYTHON, node)
    greeting, closed, report = said.splitlines()
    assert greeting.endswith(" at n1")
    assert closed == "somebody closed it"
    assert report == "{'done': True}"


async def test_use_from_javascript(reader: Reader) -> None:
    parts = programs("use-from-javascript", "js")
    assert len(parts) > 5
    async with running_node() as node:
        said = await reader.run("js", "\n".join(parts), node)
    assert "at n1" in said
    assert "prices/ACME { bid: 101.6, last: true }" in said


# --- Requests ---------------------------------------------------------------------------------------------------------


async def answered(session: Session) -> object:
    """Ask until somebody handles it."""
    async with time_limit():
        while True:
            try:
                return await session.request("quotes/ACME", None)
            except NoHandler:
                await asyncio.sleep(0.01)


@BOTH
async def test_ask_and_answer(reader: Reader, language: str) -> None:
    answering, asking, *naming = programs("ask-and-answer", language)
    async with running_node() as node, reader.started(language, answering, node):
        async with connect(node.url, "bob") as session:
            assert await answered(session) == {"bid": 101.5, "for": "bob"}
        quoted = {"python": "{'bid': 101.5, 'for': '%s'}\n", "js": "{ bid: 101.5, for: '%s' }\n"}[language]
        assert await reader.run(language, asking, node) == quoted % "alice"
        for each in naming:
            assert await reader.run(language, each, node) == quoted % "support"


# --- Queues -----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P16")
@BOTH
async def test_consume_and_publish_atomically(reader: Reader, language: str) -> None:
    """P16: each message gives one result."""
    (worker,) = programs("consume-and-publish-atomically", language)
    async with running_node() as node, connect(node.url, "alice") as session:
        await declare_queues(node, "orders/new", "invoices")
        for order in range(20):
            await session.send("orders/new", {"order": order})
        async with reader.started(language, worker, node), await session.consume("invoices") as invoices:
            async with time_limit():
                assert [(await anext(invoices)).value["order"] for _ in range(20)] == list(range(20))
            async with time_limit(), await session.subscribe("orders/19") as stream:
                update = await anext(stream)
        assert (update.value, update.version) == ({"state": "shipped"}, 1)


@BOTH
async def test_share_work_among_consumers(reader: Reader, language: str) -> None:
    sending = programs("share-work-among-consumers", "python")[0]
    (consuming,) = programs("share-work-among-consumers", language)[
        {"python": slice(1, 2), "js": slice(None)}[language]
    ]
    async with running_node() as node:
        await declare_queues(node, "jobs/render")
        assert await reader.run("python", sending, node) == "1\n"
        async with reader.started(language, consuming, node) as running:
            assert await running.line() == "frame 1"


async def test_answers_by_a_temporary_queue(reader: Reader) -> None:
    asking = programs("share-work-among-consumers", "python")[-1]
    async with running_node() as node, connect(node.url, "renderer") as session:
        await declare_queues(node, "jobs/render")
        async with reader.started("python", asking, node) as running, await session.consume("jobs/render") as jobs:
            async with time_limit():
                job = await anext(jobs)
            await session.send(job.headers["answer-to"], "done")
            assert await running.rest() == "done\n"


# --- Topics -----------------------------------------------------------------------------------------------------------


async def test_follow_the_master(reader: Reader) -> None:
    (program,) = programs("follow-the-master", "python")
    async with running_node() as node:
        await eventually(lambda: master_of(node) is not None)
        assert await reader.run("python", program, node) == "n1 True\n"


@BOTH
async def test_leave_a_last_will(reader: Reader, language: str) -> None:
    (program,) = programs("leave-a-last-will", language)
    pause, none = {"python": ("sleep(10)", "sleep(0)"), "js": ("10_000", "0")}[language]
    assert pause in program
    async with running_node() as node, connect(node.url, "bob") as session:
        stream = await session.subscribe("status/*")
        assert await reader.run(language, program.replace(pause, none), node) == ""
        assert await values(stream, 2) == ["on", "switched off"]


@BOTH
async def test_let_values_end(reader: Reader, language: str) -> None:
    publishing, *following = programs("let-values-end", language)
    ttl = {"python": "ttl=30", "js": "ttl: 30"}[language]
    assert ttl in publishing
    async with running_node() as node, connect(node.url, "carol") as session, AsyncExitStack() as stack:
        stream = await session.subscribe("offers/**")
        watching = [await stack.enter_async_context(reader.started(language, each, node)) for each in following]
        await eventually(lambda: node.gateway.node.sessions.connected() == 1 + len(watching))
        assert await reader.run(language, publishing.replace(ttl, ttl.replace("30", "1")), node) == ""
        assert await values(stream, 1) == [{"price": 12.5}]
        async with time_limit():
            assert (await anext(stream)).removed
        for each in watching:
            assert [await each.line() for _ in range(2)] == ["offers/17 {'price': 12.5}", "offers/17 is over"]


@BOTH
async def test_see_who_is_there(reader: Reader, language: str, tmp_path: Path) -> None:
    destinations = tmp_path / "destinations.toml"
    destinations.write_text(programs("see-who-is-there", "toml")[0], "utf-8")
    (program,) = programs("see-who-is-there", language)
    async with running_node(destinations=destinations) as node, connect(node.url, "bob") as session:
        stream = await session.subscribe("rooms/7/chat")
        async with reader.started(language, program, node) as running:
            nobody = {"python": "None", "js": "undefined"}[language]
            # Counts and members come in any order.
            said = [(await running.line()).rpartition(" ")[0] for _ in range(2)]
            assert sorted(said) == [f"count {nobody}", "joined bob"]
            stream.close()
            said = [await running.line() for _ in range(2)]
            assert sorted(each.rpartition(" ")[0] for each in said) == [f"count {nobody}", "left bob"]
            assert said[-1].endswith(" 0")


# --- Topics with history ----------------------------------------------------------------------------------------------

PAGE: Final = "go-on-where-you-stopped"
ORDERS: Final = "orders/7"


@asynccontextmanager
async def orders() -> AsyncIterator[tuple[TestNode, Callable[..., Awaitable[str]]]]:
    """A node that keeps orders, and what publishes some and returns the id of the last event."""
    async with running_node() as node, connect(node.url, "bob") as session:
        await declare("orders/**", HistoryLimits(), node)

        async def publish(*values: str) -> str:
            receipts = [await session.publish(ORDERS, value) for value in values]
            return receipts[-1].event_id

        yield node, publish


@pytest.mark.promise("P14")
@BOTH
async def test_a_reader_with_a_file_goes_on_where_it_was_killed(reader: Reader, language: str) -> None:
    program = programs(PAGE, language)[0]
    async with orders() as (node, publish):
        place = await publish("one", "two")
        position = reader.folder / "position"
        async with reader.started(language, program, node) as running:
            assert [await running.line() for _ in range(2)] == ["orders/7 one", "orders/7 two"]
            await eventually(lambda: position.exists() and position.read_text() == place)
        place = await publish("three")
        async with reader.started(language, program, node) as running:
            assert await running.line() == "orders/7 three"
            await eventually(lambda: position.read_text() == place)


@pytest.mark.promise("P14")
async def test_a_reader_with_a_database_goes_on_where_it_was_killed(reader: Reader) -> None:
    program = programs(PAGE, "python")[1]

    def stored() -> list[str]:
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(reader.folder / "orders.db")) as database:
            return [*chain(*database.execute("SELECT value, event FROM orders, position"))]
        return []

    async with orders() as (node, publish):
        for value in ("one", "two"):
            place = await publish(value)
            async with reader.started("python", program, node):
                await eventually(lambda: stored() == [f'"{value}"', place])  # noqa: B023 - awaited within the turn


@pytest.mark.promise("P14")
async def test_durable_subscriptions_go_on_where_they_were_acknowledged(reader: Reader) -> None:
    _, _, alone, in_batches, shared, history = programs(PAGE, "python")
    async with orders() as (node, publish):
        await publish("one", "two", "three")
        for program in (alone, shared):
            async with reader.started("python", program, node) as running:
                assert [await running.line() for _ in range(3)] == ["orders/7 one", "orders/7 two", "orders/7 three"]
        async with reader.started("python", in_batches, node) as running:
            assert await running.line() == "['one', 'two', 'three']"
            last = await publish("four", "five", "six")
            assert await running.line() == "['four', 'five', 'six']"
        async with reader.started("python", alone, node) as running:
            said = [""]
            while said[-1] != "orders/7 six":
                said.append(await running.line())
            # What was not acknowledged yet when it was killed comes again.
            assert said[-3:] == ["orders/7 four", "orders/7 five", "orders/7 six"]
            assert len(said) <= 1 + 6
        assert (await reader.run("python", history, node)).splitlines()[-1] == f"{last} six"


# --- Who clients are --------------------------------------------------------------------------------------------------

WATCH: Final = """
import asyncio
import os


async def fetch_token():
    print("asked", flush=True)
    return os.environ["TOKEN"]


asyncio.run(watch("ws://127.0.0.1:18000", fetch_token))
"""
"""Calls what the page defines."""

JWT: Final = """
issuer = "{issuer}"
audience = ["{audience}"]
algorithms = ["ES256"]
jwks_url = "{url}/keys"
properties = {{ team = "team" }}
"""


async def test_authenticate(reader: Reader, tmp_path: Path) -> None:
    greeting, watching, service = programs("authenticate", "python")
    now = time.time()
    secret = token("ES256", iat=now, exp=now + 300)
    port = free_port()
    callback, tokens = tmp_path / "callback.toml", tmp_path / "jwt.toml"
    callback.write_text(f'url = "http://127.0.0.1:{port}/who"', "utf-8")
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(Provider(jwk("ES256")))
        tokens.write_text(JWT.format(issuer=ISSUER, audience=AUDIENCE, url=provider.url), "utf-8")
        auth = ChainedUsers((JwtUsers(tokens), CallbackUsers(callback)))
        node = await stack.enter_async_context(running_node(auth=auth))
        asking = greeting.replace("127.0.0.1:8100", CLUSTER)
        assert await reader.run("python", asking, node, TOKEN=secret) == "alice of team fx\n"
        async with reader.started("python", watching + WATCH, node, TOKEN=secret) as running:
            assert await running.line() == "asked"
            await eventually(lambda: node.gateway.node.sessions.connected() == 1)
        running = await stack.enter_async_context(
            reader.started("python", service.replace("9300", str(port)), PYTHONUNBUFFERED="1")
        )
        assert "Running on" in await running.line()
        async with connect(node.url, "", "k-7f3a") as session:
            assert (session.principal, session.properties["$principal.team"]) == ("reports", "fx")
        with pytest.raises(Unauthenticated):
            await connect(node.url, "", "k-0000")


async def test_serve_over_tls(reader: Reader, tmp_path: Path) -> None:
    (program,) = programs("serve-over-tls", "python")
    authority = Authority(tmp_path)
    text = program.replace("/etc/gateway/authority.pem", str(authority.file)).replace("gateway.example:8101", CLUSTER)
    async with running_node(tls_certificate=authority.issue("node")) as node:
        assert (await reader.run("python", text, node)).endswith(" at n1\n")
