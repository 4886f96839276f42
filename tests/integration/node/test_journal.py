"""What nodes write into the journal, from the wire to the streams: every event where its fact arises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.adapters.memory import MemoryGrid, MemoryGridServer
from gateway.app.journal import writer
from gateway.app.operations import minutes
from gateway.client import connect
from gateway.core.destinations.destination import Destination, Origin
from gateway.core.destinations.limits import QueueLimits
from gateway.core.journal import EVENT_TYPES, JOURNAL_PARTITIONS, Record, event_type, read_event_id, read_records
from gateway.core.policy.permissions import Policy, Role, parse_template
from gateway.core.topics.selectors import parse_selector
from gateway.ports import GridUnavailable
from gateway.settings.values import PrincipalNames
from tests.support.nodes import SHORT_LEASE, TestNode, eventually, running_node
from tests.support.raw_client import RawClient

LEASE_MICROSECONDS = round(SHORT_LEASE["lease"] * 1_000_000)
"""Length of a lease as the journal tells it."""


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write soon, and measure often."""
    monkeypatch.setattr(writer, "GATHER", 0.01)
    monkeypatch.setattr(minutes, "INTERVAL", 0.1)


def records(memory: MemoryGridServer, *names: str) -> list[Record]:
    """Read the journal, partition by partition, events of *names* only if there are any."""
    found: list[Record] = []
    for partition in range(JOURNAL_PARTITIONS):
        stream = memory.journal(partition)
        for entry in () if stream is None else stream.entries:
            for each in read_records(entry.events):
                assert isinstance(each, dict), each
                kind = event_type(each["type"])
                assert kind is not None
                known = {"version", "id", "type", "at", "node", "incarnation", "release", "session", "epoch"}
                assert each.keys() <= known | set(kind.fields), each
                found.append(each)
    return [each for each in found if not names or each["type"] in names]


async def told(memory: MemoryGridServer, name: str, where: Callable[[Record], bool] = lambda _: True) -> Record:
    """Wait until an event is in the journal, and return the last one."""
    await eventually(lambda: any(map(where, records(memory, name))))
    return [each for each in records(memory, name) if where(each)][-1]


@asynccontextmanager
async def journalled(name: str, memory: MemoryGridServer, **settings: Any) -> AsyncIterator[TestNode]:
    async with running_node(name, memory=memory, journal=True, **settings) as node:
        yield node


async def test_the_life_of_a_session(memory: MemoryGridServer) -> None:
    async with journalled("n1", memory) as n1, journalled("n2", memory) as n2:
        async with RawClient(n1.url) as raw:
            welcome = await raw.hello("alice", client="test/1", window=30)
            session = welcome["session"]
            await raw.send({"type": "subscribe", "id": 1, "request": 1, "selector": "a/**"})
            await raw.expect("reply")
            await raw.send({"type": "properties", "id": 2, "request": 2, "set": {"team": "a secret team", "x": None}})
            await raw.expect("reply")
            await raw.send({"type": "publish", "id": 3, "request": 3, "topic": "a/b", "value": "a secret value"})
            await raw.expect("reply")
            await raw.cut()
        async with RawClient(n1.url) as raw:
            again = await raw.resume(welcome["token"], attempt=1, away=1840, received=1, oldest=4)
            assert again["outcome"] == "reattached"
            await raw.ws.close(code=4000)
        await told(memory, "session_disconnected", lambda each: each["cause"] == "going_away")
        async with RawClient(n2.url) as raw:
            over = await raw.resume(again["token"], attempt=2, away=-1)
            assert over["outcome"] == "failed_over"
            await raw.send({"type": "bye"})
            await raw.closed()
        await told(memory, "session_closed")
        mine = [each for each in records(memory) if each.get("session") == session]
        token_free = orjson.dumps(records(memory)).decode()
        first = n1.gateway.me
    kinds = [each["type"] for each in mine if each["type"] != "session_fenced"]
    assert kinds == [
        *("session_opened", "session_selections_changed", "session_properties_changed", "session_disconnected"),
        *("session_resumed", "session_disconnected", "session_resumed", "session_closed"),
    ]
    opened, selected, changed, lost, back, left, failed_over, closed = (
        each for each in mine if each["type"] != "session_fenced"
    )
    assert (opened["principal"], opened["client"], opened["window_ms"]) == ("alice", "test/1", 30_000)
    assert (selected["names"], selected["count"]) == (["+a/**"], 1)
    assert (sorted(changed["names"]), changed["count"]) == (["team", "x"], 2)
    assert (lost["cause"], lost["deduplicated"]) == ("connection_lost", 0)
    assert (back["rung"], back["lost"], back["peer"]) == ("reattached", 0, "n1")
    assert back["away_ms"] >= 1840, "what it waited here is added to what it says"
    assert back["resent"] == 3
    assert (left["cause"], left["code"]) == ("going_away", 4000)
    assert (failed_over["rung"], failed_over["reason"], failed_over["node"]) == ("failed_over", "other_node", "n2")
    assert "away_ms" not in failed_over, "what a client cannot have measured is not told"
    assert "lost" not in failed_over
    assert (failed_over["replayed"], "replayed" in back) == (False, False)
    assert (failed_over["peer"], failed_over["peer_incarnation"]) == ("n1", first.incarnation)
    assert closed["reason"] == "session_closed"
    assert [each["epoch"] for each in (opened, back, failed_over)] == [1, 2, 3]
    for secret in (welcome["token"], again["token"], over["token"], "a secret value", "a secret team"):
        assert secret not in token_free


@pytest.mark.promise("P13")
async def test_a_failover_tells_whether_all_that_was_missed_followed(memory: MemoryGridServer) -> None:
    async with journalled("n1", memory) as n1, journalled("n2", memory) as n2:
        async with RawClient(n1.url) as raw:
            token = (await raw.hello("alice", supports=["replay"]))["token"]
            await raw.send({"type": "subscribe", "id": 1, "request": 1, "selector": "a/**"})
            notice = await raw.expect("notice")
            await raw.cut()
        places: dict[str, Any] = {"positions": notice["positions"]}
        for attempt, node, said in ((1, n2, places), (2, n1, {})):
            async with RawClient(node.url) as raw:
                welcome = await raw.resume(token, attempt=attempt, oldest=2**53 - 1, supports=["replay"], **said)
                token = welcome["token"]
                assert (welcome["outcome"], welcome.get("replayed")) == ("failed_over", True if said else None)
                await raw.cut()
        await eventually(lambda: len(records(memory, "session_resumed")) == 2)
        found = {each["node"]: each for each in records(memory, "session_resumed")}
    assert (found["n2"]["replayed"], found["n2"]["lost"]) == (True, 0)
    assert (found["n1"]["replayed"], "lost" in found["n1"]) == (False, False)


async def test_numbers_have_no_hole_and_a_restarted_node_counts_anew(memory: MemoryGridServer) -> None:
    for _ in range(2):
        async with journalled("n1", memory) as node:
            for _ in range(5):
                async with RawClient(node.url) as raw:
                    await raw.hello()
            await eventually(lambda: len(list(node.gateway.node.sessions)) >= 5)
            await told(memory, "session_disconnected")
    numbers: dict[str, list[int]] = {}
    for each in records(memory):
        incarnation, number = read_event_id(each["id"])
        numbers.setdefault(incarnation, []).append(number)
    assert len(numbers) == 2
    for found in numbers.values():
        assert sorted(found) == list(range(1, len(found) + 1))
    assert len(records(memory, "node_started")) == len(records(memory, "node_stopped")) == 2


async def test_selections_that_a_policy_takes_away(memory: MemoryGridServer) -> None:
    def allow(node: TestNode, *templates: str) -> None:
        role = Role(select=tuple(map(parse_template, templates)))
        node.gateway.node.authorisation.reload(Policy({"r": role}, default=["r"]))

    def selected(each: Record) -> tuple[object, ...]:
        return each["node"], each["epoch"], each["names"], each["count"]

    async with journalled("n1", memory) as n1, journalled("n2", memory) as n2:
        async with RawClient(n1.url) as raw:
            welcome = await raw.hello()
            for number, selector in enumerate(("a/**", "b/**", "c/**"), 1):
                await raw.send({"type": "subscribe", "id": number, "request": number, "selector": selector})
                await raw.expect("reply")
            allow(n1, "a/x", "a/y", "c/**")
            await raw.expect("notice")
            await told(memory, "session_selections_changed", lambda each: each["names"] == ["-a/**", "-b/**"])
        allow(n2, "a/**")
        async with RawClient(n2.url) as raw:
            again = await raw.resume(welcome["token"], attempt=1)
            assert again["withdrawn"] == ["c/**"]
            await told(memory, "session_selections_changed", lambda each: each["names"] == ["-c/**"])
    assert [selected(each) for each in records(memory, "session_selections_changed")] == [
        ("n1", 1, ["+a/**"], 1),
        ("n1", 1, ["+b/**"], 2),
        ("n1", 1, ["+c/**"], 3),
        ("n1", 1, ["-a/**", "-b/**"], 3),
        ("n2", 2, ["-c/**"], 2),
    ]


@pytest.mark.promise("P17")
async def test_a_dead_node_and_its_sessions(memory: MemoryGridServer) -> None:
    quick = SHORT_LEASE
    async with journalled("n1", memory, **quick) as n1, journalled("n2", memory, **quick) as n2:
        async with RawClient(n1.url) as raw:
            welcome = await raw.hello()
            grid = n1.gateway.node._context.grid
            assert isinstance(grid, MemoryGrid)
            grid.cut()
            orphaned = await told(memory, "session_orphaned")
            expired = await told(memory, "node_expired")
            taken = await told(memory, "node_taken_over")
            grid.mend()
            # One is told when the connection is back, the other when the lease is asked for over it.
            for name in ("grid_lost", "grid_regained", "node_lease_lost"):
                await told(memory, name, lambda each: each["node"] == "n1")
        dead, survivor = n1.gateway.me, n2.gateway.me
    assert orphaned["session"] == welcome["session"]
    assert orphaned["epoch"] == 1
    for each in (orphaned, expired):
        assert (each["node"], each["peer"], each["peer_incarnation"]) == (survivor.node, "n1", dead.incarnation)
        assert each["until"] - each["since"] == LEASE_MICROSECONDS
        assert each["since"] < each["until"] <= each["at"]
    assert taken["count"] == 1
    # What the node told while it was alone is there all the same, under its own name. Both nodes share the test's loop:
    # where that stands still for a lease, leases are lost besides, and more than once.
    assert {each["node"] for each in records(memory, "grid_lost")} == {"n1"}
    assert "n1" in {each["node"] for each in records(memory, "node_lease_lost")}


@pytest.mark.promise("P17")
async def test_a_takeover_is_told_once_though_answers_are_lost(
    memory: MemoryGridServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = SHORT_LEASE
    async with journalled("n1", memory, **quick) as n1, journalled("n2", memory, **quick) as n2:
        ours, theirs = n1.gateway.node._context.grid, n2.gateway.node._context.grid
        assert isinstance(ours, MemoryGrid)
        steps: list[str] = []

        def lose_first_answer(part: object, step: str) -> None:
            execute = getattr(part, step)

            async def executed(*asked: object, **more: object) -> object:
                answer = await execute(*asked, **more)
                steps.append(step)
                if steps.count(step) == 1:
                    raise GridUnavailable("the answer was lost on its way")
                return answer

            monkeypatch.setattr(part, step, executed)

        lose_first_answer(theirs.sessions, "orphan")
        lose_first_answer(theirs.nodes, "finish_takeover")
        async with RawClient(n1.url) as one, RawClient(n1.url) as two:
            sessions = {(await each.hello())["session"] for each in (one, two)}
            ours.cut()
            await eventually(lambda: "finish_takeover" in steps)
            await told(memory, "node_taken_over")
            ours.mend()
            await told(memory, "node_lease_lost")
    assert steps.count("orphan") > 1
    orphaned = records(memory, "session_orphaned")
    assert sorted(each["session"] for each in orphaned) == sorted(sessions)
    expired, taken = records(memory, "node_expired", "node_taken_over")
    assert [each["until"] - each["since"] for each in (expired, *orphaned)] == [LEASE_MICROSECONDS] * 3
    assert taken["count"] == len(sessions)


async def test_refusals_name_the_session_only_if_the_token_is_genuine(memory: MemoryGridServer) -> None:
    async with journalled("n1", memory) as node:
        async with RawClient(node.url) as raw:
            welcome = await raw.hello()
            await raw.send({"type": "bye"})
            await raw.closed()
        async with RawClient(node.url) as raw:
            await raw.resume(welcome["token"], attempt=1, away=5)
            await raw.closed()
        genuine = await told(memory, "session_refused")
        async with RawClient(node.url) as raw:
            await raw.resume("no-token", attempt=1)
            await raw.closed()
        forged = await told(memory, "session_refused", lambda each: each["reason"] == "token_invalid")
    assert (genuine["session"], genuine["reason"], genuine["away_ms"]) == (welcome["session"], "session_closed", 5)
    assert "session" not in forged


async def test_traffic_is_measured_and_expiry_told(memory: MemoryGridServer) -> None:
    async with journalled("n1", memory, reap_interval=0.2) as node:
        async with RawClient(node.url) as reader, RawClient(node.url) as publisher:
            await reader.hello("reader", window=0.2)
            await reader.send({"type": "subscribe", "id": 1, "request": 1, "selector": "**"})
            await reader.expect("reply")
            await publisher.hello("publisher", window=0.2)
            await publisher.send({"type": "publish", "id": 1, "request": 1, "topic": "a/b", "value": 12345})
            await reader.expect("update")
            root = await told(memory, "traffic_measured", lambda each: each.get("root") == "a")
            whole = await told(memory, "traffic_measured", lambda each: each.get("connections") == 2)
        await told(memory, "session_expired")
    assert (root["deliveries"], root["publishes"], root["bytes"]) == (1, 1, 5)
    assert (whole["sessions"], "root" in whole) == (2, False)
    assert whole["since"] < whole["until"]
    assert "cpu_ms" in whole


async def test_what_passes_through_queues_is_measured(memory: MemoryGridServer) -> None:
    queue = Destination(selector=parse_selector("jobs/work"), limits=QueueLimits(), origin=Origin.FILE)
    async with journalled("n1", memory) as node:
        node.gateway.node.destinations.table.put(queue)
        async with connect(node.url.replace("http", "ws", 1), "alice") as session:
            for number in range(3):
                await session.send("jobs/work", number)
            consumer = await session.consume("jobs/work", credit=1, ack="each")
            await (await anext(consumer)).accept()
            await (await anext(consumer)).release()
            again = await anext(consumer)
            assert again.redelivered
            await again.reject()
            wanted = {"sent": 3, "accepted": 1, "released": 1, "rejected": 1, "redelivered": 1, "given": 4}
            await eventually(lambda: _summed(memory, wanted) == wanted)
    for each in records(memory, "queue_measured"):
        assert each["queue"] == "jobs/work"
        assert each["since"] < each["until"]
        assert 0 <= each["settle_ms"] == each["settle_max_ms"]


def _summed(memory: MemoryGridServer, names: Iterable[str]) -> dict[str, int]:
    measured = records(memory, "queue_measured")
    return {name: sum(each[name] for each in measured) for name in names}


async def test_a_superseded_connection_is_told_before_the_resume(memory: MemoryGridServer) -> None:
    async with journalled("n1", memory) as node, RawClient(node.url) as first, RawClient(node.url) as second:
        welcome = await first.hello()
        await second.resume(welcome["token"], attempt=1)
        await told(memory, "session_resumed")
    causes = [each.get("cause", each["type"]) for each in records(memory, "session_disconnected", "session_resumed")]
    assert causes[:2] == ["superseded", "session_resumed"]


async def test_a_drain_is_told(memory: MemoryGridServer) -> None:
    async with journalled("n1", memory) as node, RawClient(node.url) as raw:
        await raw.hello()
        drain = asyncio.create_task(node.gateway.drain())
        draining = await told(memory, "node_draining")
        await raw.ws.close()
        await drain
    assert draining["sessions"] == 1
    (stopped,) = records(memory, "node_stopped")
    assert stopped["sessions"] == 1, "it waits for its client, at whichever node that comes to"


async def test_principals_can_be_hashed(memory: MemoryGridServer, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef0123456789abcdef\n")
    hashed = {"journal_principals": PrincipalNames.HASHED, "journal_principals_key_file": key}
    async with journalled("n1", memory, **hashed) as node:
        for _ in range(2):
            async with RawClient(node.url) as raw:
                await raw.hello("alice")
        await eventually(lambda: len(records(memory, "session_opened")) == 2)
    one, other = records(memory, "session_opened")
    assert one["principal"] == other["principal"]
    assert one["principal"].startswith("hmac:")
    assert "alice" not in orjson.dumps(records(memory)).decode()


async def test_nothing_is_written_unless_it_is_asked_for(memory: MemoryGridServer) -> None:
    async with running_node("n1", memory=memory) as node, RawClient(node.url) as raw:
        await raw.hello()
    assert records(memory) == []


@pytest.mark.promise("P10")
async def test_a_grid_that_takes_no_journal_slows_nobody(
    memory: MemoryGridServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delivery goes on as ever while every append hangs."""
    async with journalled("n1", memory) as node:
        hung = asyncio.Event()

        async def hang(_batches: object) -> list[Any]:
            hung.set()
            await asyncio.get_running_loop().create_future()
            return []

        async with RawClient(node.url) as raw:
            monkeypatch.setattr(node.gateway.node._context.grid.journal, "append", hang)
            await raw.hello()
            await raw.send({"type": "subscribe", "id": 1, "request": 1, "selector": "a/**"})
            await raw.expect("reply")
            await hung.wait()
            for number in range(2, 50):
                await raw.send({"type": "publish", "id": number, "request": number, "topic": "a/b", "value": number})
                update = await raw.expect("update")
                assert update["value"] == number
        monkeypatch.undo()


_TELLERS = ("session_events", "node_events", "zone_events", "recorder")


def test_every_event_is_declared_where_it_can_be_told() -> None:
    """No event of the schema is forgotten by what is announced, or by the recorder itself."""
    sources = Path(__file__).parents[3] / "gateway/app/journal"
    text = "".join((sources / f"{each}.py").read_text() for each in _TELLERS)
    assert [name for name in EVENT_TYPES if f"happened.{name.upper()}" not in text] == []
