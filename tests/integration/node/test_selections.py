"""One node over the in-memory grid: what a list of selections may cost, whoever asks for it (P20)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.adapters.memory import MemoryGridServer
from gateway.app.session.session import Session
from gateway.core.types import SessionId
from gateway.ports import Ownership, SelectionChanges, SessionChanges
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.promise("P20")

COSTLY = (
    "select = ["
    + ", ".join(f'"**/{letter}{"/*" * 14}"' for letter in "abcdefgh")
    + ", "
    + ", ".join(f'"{"/".join("*" * length)}"' for length in range(1, 15))
    + ', "mine/**"]'
)
"""Rules that count from the end, among others that bar the short way: as many combinations as there are subsets."""

POLICY = f'default = ["reader"]\n[roles.reader]\n{COSTLY}\n'


class Client:
    """A client that subscribes."""

    def __init__(self, raw: RawClient, session: Session) -> None:
        self.raw = raw
        self.session = session
        self.sent = 0

    async def ask(self, kind: str, selector: str, **fields: Any) -> dict[str, Any]:
        self.sent += 1
        number = self.sent
        await self.raw.send({"id": number, "request": number, "type": kind, "selector": selector, **fields})
        reply = await self.raw.expect("reply", where=lambda packet: packet["request"] == number)
        error: dict[str, Any] = reply.get("error") or {}
        return error


async def connected(node: TestNode, raw: RawClient) -> Client:
    welcome = await raw.hello("alice")
    session = node.gateway.node.sessions.get(SessionId(welcome["session"]))
    assert session is not None
    return Client(raw, session)


@pytest.fixture
def costly(tmp_path: Path) -> Path:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY, "utf-8")
    return file


async def test_the_bytes_of_a_list_are_bounded_and_the_limit_is_announced() -> None:
    async with running_node(limit_selection_bytes=1024) as node, RawClient(node.url) as raw:
        client = await connected(node, raw)
        assert raw.seen[0]["limits"]["selection_bytes"] == 1024
        assert not await client.ask("subscribe", "a" * 700)
        error = await client.ask("subscribe", "b" * 700)
        assert error["code"] == "too_many_selections"
        assert "limit_selection_bytes: the session's selectors would have 1402 bytes" in error["message"]
        error = await client.ask("unsubscribe", "a" * 700, keep=["c" * 600, "d" * 600])
        assert error["code"] == "too_many_selections"
        assert client.session.selections.to_wire() == ("+" + "a" * 700,)
        assert not await client.ask("unsubscribe", "a" * 700, keep=["c" * 600])
        assert not await client.ask("subscribe", "e" * 400), "what was given back can be used"


async def test_a_selector_that_is_too_complicated_to_be_judged_is_refused_and_nothing_else(costly: Path) -> None:
    async with running_node(policy=costly) as node, RawClient(node.url) as raw:
        client = await connected(node, raw)
        error = await client.ask("subscribe", "**/a/**/b/**/c/**")
        assert error["code"] == "forbidden"
        assert "'**/a/**/b/**/c/**' is too complicated to be judged against the policy" in error["message"]
        error = await client.ask("subscribe", "other/" + "/".join("z" * 17))
        assert "nor any part of it" in error["message"]
        assert not await client.ask("subscribe", "mine/**/a/**/b/**/c/**"), "one rule covers it"
        assert not await client.ask("subscribe", "x/*/*")


async def test_what_a_request_costs_is_charged_and_the_next_selection_waits_for_it(costly: Path) -> None:
    """Others are served meanwhile, and so is what else the client asks for."""
    running = running_node(policy=costly, rate_packets=100.0, rate_burst=200)
    async with running as node, RawClient(node.url) as raw, RawClient(node.url) as other:
        client, quick = await connected(node, raw), await connected(node, other)
        clock = node.gateway.node._context.clock
        for _ in range(3):
            assert "too complicated" in (await client.ask("subscribe", "**/a/**/b/**/c/**"))["message"]
            if client.session.rests_until > clock.monotonic():
                break
        assert client.session.rests_until > clock.monotonic(), "some hundreds of packets' worth of work"
        assert not await quick.ask("subscribe", "mine/x")
        assert quick.session.rests_until <= clock.monotonic(), "usual requests cost what packets cost"
        assert not await client.ask("subscribe", "mine/x")
        assert client.session.rests_until <= clock.monotonic()


async def test_one_entry_of_a_long_list_is_written_alone() -> None:
    memory = MemoryGridServer()
    async with running_node(memory=memory) as node, RawClient(node.url) as raw:
        client = await connected(node, raw)
        written: list[SessionChanges] = []
        store: Any = node.gateway.node._context.grid.sessions
        change = store.change

        async def noting(ownership: Ownership, changes: SessionChanges) -> None:
            written.append(changes)
            await change(ownership, changes)

        store.change = noting
        for number in range(100):
            assert not await client.ask("subscribe", f"prices/{number}/**")
            assert written.pop().selection_changes == SelectionChanges(added=(f"+prices/{number}/**",))
        assert not await client.ask("unsubscribe", "prices/7/x")
        assert written.pop().selection_changes == SelectionChanges(added=("-prices/7/x",))
        assert not await client.ask("subscribe", "prices/7/*")
        assert written.pop().selection_changes == SelectionChanges(removed=("prices/7/x",)), "an older one covers it"
        assert not await client.ask("unsubscribe", "prices/7/**", keep=["prices/7/y"])
        assert written.pop().selection_changes == SelectionChanges(removed=("prices/7/**",), added=("+prices/7/y",))
        assert not await client.ask("subscribe", "prices/8/x")
        assert not written, "it changes nothing"
        found = await store.find(client.session.id)
        assert found is not None
        assert found.selections == client.session.selections.to_wire()
        assert len(found.selections) == 100


async def test_a_list_survives_an_answer_that_was_lost() -> None:
    """The grid may have taken the entry or not; asked again it has it once, in its place."""
    memory = MemoryGridServer()
    async with running_node(memory=memory) as node, RawClient(node.url) as raw:
        client = await connected(node, raw)
        for number in range(20):
            assert not await client.ask("subscribe", f"a/{number}/**")
        memory.lose_answers()
        assert not await client.ask("unsubscribe", "a/3/**", keep=["a/3/x"])
        assert not await client.ask("subscribe", "b")
        expected = (*(f"+a/{number}/**" for number in range(20) if number != 3), "+a/3/x", "+b")
        assert client.session.selections.to_wire() == expected
        store = node.gateway.node._context.grid.sessions
        await eventually(lambda: not client.session.unsaved)
        found = await store.find(client.session.id)
        assert found is not None
        assert found.selections == expected
