"""A node is suspended for longer than its lease, its clients move on, it wakes up: it is fenced and harms nobody.

Promise P3. While the node stands still its sockets stay open and take what they are sent, so at its wake it finds
requests and resumes that are 20 seconds old, from clients that have been served elsewhere since. What it then does to
the grid is read from Redis itself, command by command.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped]
import pytest
import redis.asyncio as redis

from gateway.adapters.redis.keys import Keys
from gateway.core.types import SessionId
from gateway.core.wire.codes import FENCED, GRID_UNAVAILABLE, STALE_ATTEMPT, SUPERSEDED, FailoverReason, Outcome
from gateway.local.stack import Stack
from tests.cluster.crowds import Counting, Figures, Member, converged, crowd, gaps
from tests.cluster.grid_reader import PREFIX, GridReader
from tests.support.faults import eventually
from tests.support.raw_client import Packet, RawClient
from tests.support.stack import cluster
from tests.support.times import scaled

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P3")]

VICTIM: Final = "n1"
OTHER: Final = "n2"
THIRD: Final = "n3"
PAUSE: Final = 20.0
"""Seconds for which the node is suspended: several leases. A handshake may take twice as long."""
SHORTER: Final = 10.0
"""The same, where its connections to the grid are lost besides."""
LEASE: Final = min(scaled(2.0), 6.0)
"""Seconds; they end in the shorter pause, however busy the machine is."""
SETTINGS: Final[dict[str, Any]] = {
    "lease": LEASE,
    "lease_renew": LEASE / 4,
    # The delayed resumes shall be read, and not be too late for a reason that has nothing to do with fencing.
    "handshake_timeout": 2 * PAUSE,
    "backoff_initial": 0.05,
    "backoff_maximum": 0.5,
}
HARMLESS: Final = (STALE_ATTEMPT, GRID_UNAVAILABLE, FENCED, SUPERSEDED)
"""How a late attempt may end where the node cannot ask the grid."""
MEMBERS: Final = 18
COUNTERS: Final = 2
"""Members of each node that publish."""
PACE: Final = 0.25
"""Seconds between two publishes of each: what the suspended node misses fits into the buffers of those who wait."""
PRICES: Final = "prices/*"


# --- What goes on -----------------------------------------------------------------------------------------------------


class Trade:
    """Some members of each node publish until told to stop."""

    def __init__(self, members: list[Member], faithful: Member) -> None:
        by_node: dict[str, list[Member]] = {}
        for member in members:
            by_node.setdefault(member.session.node, []).append(member)
        publishers = [member for each in by_node.values() for member in each[:COUNTERS]]
        self.topics = [
            Counting(member.session, f"prices/{number}") for number, member in enumerate([*publishers, faithful])
        ]
        self._stopping = asyncio.Event()
        self._tasks = [asyncio.create_task(self._count(topic)) for topic in self.topics]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def end(self) -> None:
        self._stopping.set()
        await asyncio.gather(*self._tasks)

    async def goes_on(self, *, without: str | None = None) -> None:
        """Wait until all have had some more receipts, but for those whom node *without* serves."""
        before = [(topic, len(topic.receipts)) for topic in self.topics if topic.session.node != without]
        await eventually(lambda: all(len(topic.receipts) > had + 3 for topic, had in before), "traffic goes on")

    async def _count(self, topic: Counting) -> None:
        while not self._stopping.is_set():
            await asyncio.gather(topic.publish(), asyncio.sleep(PACE))


class Mover:
    """A client that asks the suspended node for something, gives it up and goes on at another node."""

    def __init__(self, old: RawClient, new: RawClient, welcome: Packet) -> None:
        self.old = old
        self.new = new
        self.session: str = welcome["session"]
        self._token: str = welcome["token"]

    @classmethod
    @asynccontextmanager
    async def settled(cls, stack: Stack) -> AsyncIterator[Self]:
        """Open a session at the victim."""
        async with RawClient(stack.node_url(VICTIM)) as old, RawClient(stack.node_url(OTHER)) as new:
            mover = cls(old, new, await old.hello("mover"))
            await old.send({"id": 1, "request": 1, "type": "subscribe", "selector": "moved/*"})
            await old.send(moved(2, id=2), given_up(3, id=3))
            await old.expect("reply", where=lambda packet: packet["request"] == 3)
            yield mover
            await new.send({"type": "bye"})
            await new.closed()

    async def ask(self) -> None:
        """Send what the suspended node will read when it wakes."""
        # In a partition where its next node will publish nothing, so that no epoch tells there that this comes late.
        await self.old.send(given_up(4, id=4))
        await self.old.send(moved(5, id=5))
        await self.old.send({"id": 6, "request": 6, "type": "properties", "set": {"moved": "no"}})
        await self.old.send({"id": 7, "request": 7, "type": "subscribe", "selector": "late/*"})
        await self.old.send(moved(8, id=8))

    def answers_of_victim(self) -> list[Packet]:
        """Tell what the node answered to what it had read too late."""
        return [packet for packet in self.old.seen if packet["type"] == "reply" and packet["request"] > 3]

    async def move(self) -> None:
        """Resume elsewhere and ask again, though not for all of it, and with another wish for the properties."""
        welcome = await self.new.resume(self._token, attempt=1, received=4, oldest=4)
        assert (welcome["outcome"], welcome["reason"]) == ("failed_over", "other_node")
        await self.new.send(moved(5, id=1, resubmitted=True))
        await self.new.send({"id": 2, "request": 6, "type": "properties", "set": {"moved": "yes"}, "resubmitted": True})
        await self.new.expect("reply", where=lambda packet: packet["request"] == 6)


class Late:
    """A client whose resumes the suspended node will read when it wakes, but which did not wait for that.

    Attributes:
        attempts: the connections over which they were sent, one attempt each, from 1 on.
        session: id.
    """

    def __init__(self, attempts: list[RawClient], welcome: Packet) -> None:
        self.attempts = attempts
        self.session: str = welcome["session"]
        self._token: str = welcome["token"]

    @classmethod
    @asynccontextmanager
    async def prepared(cls, stack: Stack, home: str, attempts: int) -> AsyncIterator[Self]:
        """Open a session at *home*, lose its transport, and connect to the victim, several times."""
        async with RawClient(stack.node_url(home)) as lost:
            welcome = await lost.hello("late")
        async with AsyncExitStack() as connections:
            yield cls(
                [await connections.enter_async_context(RawClient(stack.node_url(VICTIM))) for _ in range(attempts)],
                welcome,
            )

    async def ask(self) -> None:
        """Send the attempts to the suspended node."""
        for attempt, raw in enumerate(self.attempts, 1):
            await raw.ask_to_resume(self._token, attempt=attempt)

    @asynccontextmanager
    async def resumed(self, stack: Stack, node: str) -> AsyncIterator[Packet]:
        """Go on at *node* with one attempt more; at the end the session is closed."""
        async with RawClient(stack.node_url(node)) as raw:
            yield await raw.resume(self._token, attempt=len(self.attempts) + 1)
            # Still the session's connection, after all that happened.
            await raw.send({"id": 1, "request": 1, "type": "publish", "topic": f"late/{self.session}", "value": 1})
            assert "error" not in await raw.expect("reply")
            await raw.send({"type": "bye"})
            await raw.closed()

    async def answers(self) -> list[tuple[str, int | None]]:
        """Wait until every attempt is over, and tell how: its first packet, by type or error code, and the close."""
        ends = [await raw.closed() for raw in self.attempts]
        first: list[str] = [raw.seen[0].get("code") or raw.seen[0]["type"] for raw in self.attempts]
        return list(zip(first, ends, strict=True))


def given_up(request: int, **fields: Any) -> Packet:
    return {"request": request, "type": "publish", "topic": "given-up/values", "value": request, **fields}


def moved(request: int, **fields: Any) -> Packet:
    return {"request": request, "type": "publish", "topic": "moved/values", "value": request, **fields}


# --- What the woken node does to the grid -----------------------------------------------------------------------------

WRITES: Final = frozenset({"HSET", "HDEL", "DEL", "ZADD", "ZREM", "RPUSH", "LTRIM", "XADD", "SET", "HINCRBY"})
"""Commands of the scripts that change something."""


class Monitor:
    """Hears every command that Redis executes, also those within scripts, and tells those of one node.

    Args:
        url: of the Redis.
        others: ports from which others are connected; everything else is the node.
    """

    def __init__(self, url: str, others: set[str]) -> None:
        self._redis = redis.Redis.from_url(url, decode_responses=True)
        self._others = others
        self._task: asyncio.Task[None] | None = None
        self.asked: list[str] = []
        self.written: list[str] = []

    async def __aenter__(self) -> Self:
        monitor = self._redis.monitor()
        await monitor.__aenter__()  # type: ignore[no-untyped-call]
        self._task = asyncio.create_task(self._listen(monitor))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._redis.aclose()

    def about(self, commands: list[str], sessions: set[str]) -> list[str]:
        """Choose the commands that name one of the sessions."""
        return [command for command in commands if any(session in command for session in sessions)]

    async def _listen(self, monitor: redis.client.Monitor) -> None:
        ours = False
        try:
            async for heard in monitor.listen():
                command: str = heard["command"]
                if heard["client_type"] == "lua":
                    if ours and command.partition(" ")[0].upper() in WRITES:
                        self.written.append(command)
                    continue
                # What follows within the script is the doing of whoever called it.
                ours = heard["client_port"] not in self._others
                if ours:
                    self.asked.append(command)
        finally:
            await monitor.__aexit__(None, None, None)  # type: ignore[no-untyped-call]


async def records(grid: GridReader, sessions: set[str]) -> dict[str, Mapping[str, str]]:
    """Read sessions whole, as they are stored."""
    keys = Keys(PREFIX)
    return {session: await grid.call("HGETALL", keys.session(SessionId(session))) for session in sessions}


# --- The test ---------------------------------------------------------------------------------------------------------


async def enter(member: Member, _number: int) -> None:
    await member.subscribe(PRICES)


@pytest.mark.parametrize(
    "cut_off",
    [
        pytest.param(False, id="and finds the grid"),
        pytest.param(True, id="and has to find the grid first", marks=pytest.mark.thorough),
    ],
)
async def test_a_suspended_node_wakes_up_fenced(tmp_path: Path, figures: Figures, *, cut_off: bool) -> None:
    loop = asyncio.get_running_loop()
    pause = SHORTER if cut_off else PAUSE
    async with (
        cluster(tmp_path, **SETTINGS) as stack,
        GridReader(stack.grid_url) as grid,
        crowd(stack.url, MEMBERS, enter) as members,
        crowd(stack.node_url(VICTIM), 1, enter, role="faithful") as faithful,
        Trade(members, faithful[0]) as trade,
        Mover.settled(stack) as mover,
        Late.prepared(stack, VICTIM, 2) as from_here,
        Late.prepared(stack, THIRD, 1) as from_elsewhere,
        Late.prepared(stack, VICTIM, 1) as patient,
    ):
        moving = [member for member in members if member.session.node == VICTIM]
        assert len(moving) > MEMBERS // 6
        await trade.goes_on()

        stack.pause_node(VICTIM)
        paused = loop.time()
        for asking in (mover, from_here, from_elsewhere, patient):
            await asking.ask()
        await mover.move()
        async with from_here.resumed(stack, OTHER) as here, from_elsewhere.resumed(stack, THIRD) as elsewhere:
            assert (here["outcome"], here["reason"], here["node"]) == ("failed_over", "other_node", OTHER)
            assert (elsewhere["outcome"], elsewhere["node"]) == ("reattached", THIRD)
            await eventually(lambda: all(member.recoveries for member in moving), "its clients have moved")
            away = loop.time() - paused
            await eventually(lambda: expired(grid), "its lease is taken over")
            await trade.goes_on(without=VICTIM)
            taken = {mover.session, from_here.session, from_elsewhere.session, *(each.session.id for each in moving)}
            before = await records(grid, taken)
            if cut_off:
                await forget_connections(grid)
            await asyncio.sleep(paused + pause - loop.time())

            async with Monitor(stack.grid_url, others=ports_but_of_victim(stack)) as monitor:
                stack.resume_node(VICTIM)
                woken = loop.time()
                assert await mover.old.closed() == FENCED.code
                answers = [*await from_here.answers(), *await from_elsewhere.answers()]
                welcome = await patient.attempts[0].expect("welcome")
                await eventually(lambda: holds(stack, {faithful[0].session.id, patient.session}), "it dropped the rest")
                fenced = loop.time() - woken
                await trade.goes_on()
            assert await records(grid, taken) == before
            asked = monitor.about(monitor.asked, taken)
            assert monitor.about(monitor.written, taken) == []
            assert asked, "it did not even try, so nothing was shown"
            assert monitor.written, "none of its writes was heard, so nothing was shown"

        # Who asked late got nothing, and who waited got what is his.
        judge_answers(answers, cut_off=cut_off)
        assert mover.answers_of_victim() == []
        assert [entry.value for entry in await grid.log("moved/values")] == [2, 5]
        assert [entry.value for entry in await grid.log("given-up/values")] == [3]
        assert (welcome["session"], welcome["outcome"]) == (patient.session, "reattached")
        await trade.end()
        await judge(members, faithful[0], moving, trade, grid)
        told = Counter(event["event"] for event in log_of(stack, VICTIM))
        assert told["lease_lost"] == 1
        assert told["session_fenced"] == len(moving) + 2, "those who moved, the mover, and who resumed elsewhere"
        assert 1 <= (await stack.metrics(VICTIM))[f'gateway_closes_total{{code="{FENCED.code}"}}'] <= 1 + cut_off
        recoveries = [recovery for member in moving for recovery in member.recoveries]
        figures(
            f"suspended {pause:g} s with a lease of {SETTINGS['lease']} s; its {len(moving)} clients behind HAProxy "
            f"had moved after {away:.1f} s ({gaps(recoveries)} from their cut), others noticed nothing; after the wake "
            f"{told['session_fenced']} sessions fenced within {fenced:.2f} s, {len(asked)} of its commands named "
            f"sessions that had moved, none wrote; 3 delayed resumes: {set(answers)}, 1 that nothing had overtaken "
            f"served; {sum(topic.asked for topic in trade.topics)} publishes once each, those of the client that "
            f"waited after {trade.topics[-1].slowest:.1f} s"
        )


def judge_answers(answers: Sequence[tuple[str, int | None]], *, cut_off: bool) -> None:
    """Late attempts are refused; without the grid nobody can know, and whoever was believed is cut off again."""
    if cut_off:
        assert {end for _, end in answers} <= {each.code for each in HARMLESS}
    else:
        assert set(answers) == {("stale_attempt", STALE_ATTEMPT.code)}


async def judge(
    members: Sequence[Member], faithful: Member, moving: Sequence[Member], trade: Trade, grid: GridReader
) -> None:
    """All have seen everything, were moved once or not at all, and the grid knows where; it has each publish once."""
    await converged([*members, faithful], grid, lambda _: {topic.topic for topic in trade.topics})
    for topic in trade.topics:
        topic.judge(await grid.log(topic.topic))
    for member in (*members, faithful):
        moved = member in moving
        assert member.violations == []
        assert member.notices == []
        expected = [(Outcome.FAILED_OVER, FailoverReason.OTHER_NODE)] if moved else []
        assert [(recovery.outcome, recovery.reason) for recovery in member.recoveries] == expected
        stored = await grid.session(member.session.id)
        assert stored is not None
        assert (stored.node, stored.connected, stored.epoch) == (member.session.node, True, 1 + moved)


def ports_but_of_victim(stack: Stack) -> set[str]:
    """Tell from which ports this process and the other nodes are connected to Redis.

    To Redis only: the kernel gives the same port to connections that lead to different places.
    """
    grid = urlsplit(stack.grid_url).port
    processes = [psutil.Process(), *(psutil.Process(stack.nodes[node].pid) for node in (OTHER, THIRD))]
    connections = [each for process in processes for each in process.net_connections("tcp") if each.raddr]
    return {str(each.laddr.port) for each in connections if each.raddr.port == grid}


async def forget_connections(grid: GridReader) -> None:
    """Have Redis drop the victim's connections, as it does with those that take nothing for long."""
    clients: str = await grid.call("CLIENT", "LIST")
    for client in clients.splitlines():
        fields = dict(field.partition("=")[::2] for field in client.split(" "))
        if fields["name"].startswith(f"gateway-{VICTIM}"):
            await grid.call("CLIENT", "KILL", "ID", fields["id"])


async def expired(grid: GridReader) -> bool:
    return VICTIM not in await grid.nodes()


async def holds(stack: Stack, sessions: set[str]) -> bool:
    metrics = await stack.metrics(VICTIM)
    held = sum(metrics[f'gateway_sessions{{state="{state}"}}'] for state in ("connected", "disconnected"))
    return held == len(sessions)


def log_of(stack: Stack, node: str) -> list[dict[str, Any]]:
    """Read the structured log of a node."""
    return [json.loads(line) for line in stack.log_of(node).read_text().splitlines() if line.startswith("{")]
