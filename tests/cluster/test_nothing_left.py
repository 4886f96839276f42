"""When a session has ended, by whatever end, nothing of it is left: not in the grid, not in a node (P7).

What is kept for a while are records of the end: 16 hexadecimal digits of a hash per session, for one window.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.adapters.redis.keys import Keys, short_hash
from gateway.app.operations.system_publisher import NAME_PREFIX
from gateway.client import connect
from gateway.core.types import SessionId
from gateway.core.wire.codes import Outcome
from gateway.local.stack import Stack
from tests.cluster.crowds import Figures, Member
from tests.cluster.grid_reader import PREFIX, GridReader, dump
from tests.support.faults import DEADLINE, eventually
from tests.support.raw_client import RawClient
from tests.support.stack import cluster
from tests.support.times import scaled

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P7")]

KEYS: Final = Keys(PREFIX)
WINDOW: Final = scaled(2.0)
"""Seconds that sessions without a client have here."""
PATIENT: Final = scaled(4.0)
"""Seconds for those whose clients come back, also on a busy machine."""
SETTINGS: Final[dict[str, Any]] = {
    "window_default": PATIENT,
    "lease": scaled(1.5),
    "lease_renew": scaled(0.4),
    "transient_wait": 1.0,
    "reap_interval": 0.3,
    "drain_timeout": scaled(1.0),
    "drain_jitter": 0.1,
    "backoff_initial": 0.1,
    "backoff_maximum": 0.5,
}
EACH: Final = 8
"""Sessions of each fate."""
PUBLISHES: Final = 5
"""Of each session, each to a topic with a root of its own and so with receipts in several partitions."""
IN_FLIGHT: Final = 40
"""Publishes that are under way when a node is killed."""

ENDED: Final = re.compile(r"session_(closed|expired):[0-9a-f]{16}")
CLOSED: Final = re.compile(r"[0-9a-f]{16}")
CLOSED_MS: Final = 70 * 60_000
"""Milliseconds for which a record keeps late publishes out: ten minutes, and an hour for a clock that is set."""


class Ghost:
    """A client that leaves without a word.

    Args:
        number: tells it from others.
    """

    def __init__(self, number: int) -> None:
        self.session = ""
        self.token = ""
        self._number = number
        self._raw: RawClient | None = None
        self._sent = 0

    async def haunt(self, url: str) -> None:
        """Open a session and make it leave as many traces as it can."""
        self._raw = RawClient(url)
        await self._raw.connect()
        welcome = await self._raw.hello(f"ghost-{self._number}", properties={"seat": str(self._number)}, window=WINDOW)
        self.session, self.token = welcome["session"], welcome["token"]
        await self._ask("subscribe", selector=f"root-{self._number}/**")
        await self._ask("properties", set={"desk": "by the window"})
        for part in range(PUBLISHES):
            await self._ask("publish", topic=f"root-{self._number}-{part}/value", value=part)

    async def move(self, url: str) -> None:
        """Go on at another node, which tells the first one."""
        await self.vanish()
        self._raw = RawClient(url)
        await self._raw.connect()
        assert (await self._raw.resume(self.token, attempt=1))["outcome"] == Outcome.FAILED_OVER
        await self._raw.send({"type": "ack", "received": 0})

    async def babble(self) -> None:
        """Publish, and wait for nothing."""
        assert self._raw is not None
        for part in range(IN_FLIGHT):
            self._sent += 1
            publish = {"type": "publish", "topic": f"babble-{self._number}-{part}/value", "value": part}
            await self._raw.send({"id": self._sent, "request": self._sent, **publish})

    async def vanish(self) -> None:
        """Lose the connection; harmless if there is none."""
        if self._raw is not None:
            await self._raw.cut()

    async def _ask(self, kind: str, **fields: Any) -> None:
        assert self._raw is not None
        self._sent += 1
        number = self._sent
        await self._raw.send({"id": number, "request": number, "type": kind, **fields})
        reply = await self._raw.expect("reply", where=lambda packet: packet["request"] == number)
        assert "error" not in reply


async def ghosts(exits: AsyncExitStack, url: str, first: int) -> list[Ghost]:
    found = []
    for number in range(first, first + EACH):
        ghost = Ghost(number)
        exits.push_async_callback(ghost.vanish)
        await ghost.haunt(url)
        found.append(ghost)
    return found


async def people(exits: AsyncExitStack, url: str | list[str], first: int) -> list[Member]:
    """Clients as they should be."""
    found = []
    for number in range(first, first + EACH):
        session = await exits.enter_async_context(connect(url, principal=f"person-{number}"))
        found.append(Member(session.principal, session))
        await exits.enter_async_context(await session.subscribe("**"))
        await session.set_properties({"seat": str(number)})
        for part in range(PUBLISHES):
            await session.publish(f"root-{number}-{part}/value", part)
    return found


# --- What is left -----------------------------------------------------------------------------------------------------


def traces(grid: Mapping[str, str], sessions: Iterable[str]) -> list[str]:
    """Tell where ids of sessions are, in names of keys or in what they hold."""
    return sorted(
        {f"{session} in {key}" for key, content in grid.items() for session in sessions if session in key + content}
    )


def unexpected(grid: Mapping[str, str]) -> list[str]:
    """Tell which keys are there that a grid without sessions has no use for; records of ends are not counted.

    Nor are receipts of nodes, which publish what they leave to their next run; they go away by themselves.
    """
    lasting = {
        KEYS.grid,
        KEYS.leases,
        KEYS.members,
        KEYS.clocks,
        KEYS.reports,
        KEYS.lost,  # nodes that died, for people; goes away by itself
        KEYS.renewed,
        KEYS.saved,
        KEYS.master,  # one record of a node that lives, or of the last one that was; the next master replaces it
        *KEYS.opened,
        *KEYS.values,
        *KEYS.sizes,
        *KEYS.stream,
    }
    rest = grid.keys() - lasting - {*KEYS.ended, *KEYS.closed}
    return sorted(each for each in rest if f":receipts:{NAME_PREFIX}" not in each)


async def what_is_left(stack: Stack, sessions: Sequence[str], alive: set[str]) -> list[object]:
    """List why the grid is not as if there had been no session and no other node; records of ends may remain."""
    grid = await dump(stack.grid_url)
    left: list[object] = [*traces(grid, sessions), *unexpected(grid)]
    async with GridReader(stack.grid_url) as reader:
        leases = await reader.call("ZRANGE", KEYS.leases, 0, -1)
        members = await reader.call("HKEYS", KEYS.members)
        reports = await reader.call("HKEYS", KEYS.reports)
        saved = await reader.call("HKEYS", KEYS.saved)
    kept = sorted(leases) == sorted(members) == sorted(reports) == sorted(saved)
    if not kept or sorted(name.partition(":")[0] for name in leases) != sorted(alive):
        left.append(
            f"leases {leases}, members {members}, reports {reports}, saved {saved}, while {sorted(alive)} are alive"
        )
    return left


async def until_nothing_is_left(
    stack: Stack, sessions: Sequence[str], alive: set[str], *, within: float = DEADLINE
) -> None:
    """Wait until nothing is left of the sessions.

    Raises:
        AssertionError: something still is; it names what.
    """
    left: list[object] = []

    async def look() -> bool:
        left[:] = await what_is_left(stack, sessions, alive)
        return not left

    try:
        await eventually(look, "nothing is left in the grid", within=within)
    except AssertionError as late:
        raise AssertionError(f"{late}: {left}") from None


async def judge_records(stack: Stack, sessions: Sequence[str]) -> int:
    """Check that records of ends are bounded, tell nothing, and go away by themselves; returns how many there are."""
    hashes = {short_hash(SessionId(session)) for session in sessions}
    records = 0
    async with GridReader(stack.grid_url) as grid:
        for keys, form, longest in ((KEYS.ended, ENDED, PATIENT * 1000), (KEYS.closed, CLOSED, CLOSED_MS)):
            for key in keys:
                names = await grid.call("ZRANGE", key, 0, -1)
                left = await grid.call("PTTL", key)
                assert all(form.fullmatch(name) for name in names), names
                assert {name.rpartition(":")[2] for name in names} <= hashes
                assert not names or 0 < left <= longest
                records += len(names)
    return records


async def no_reason_is_left(stack: Stack) -> bool:
    """Tell whether nobody remembers why a session ended; that it did, and published, is remembered for longer."""
    grid = await dump(stack.grid_url)
    return not grid.keys() & {*KEYS.ended}


async def assert_node_is_empty(stack: Stack, node: str) -> None:
    metrics = await stack.metrics(node)
    for name in (
        *('gateway_sessions{state="connected"}', 'gateway_sessions{state="disconnected"}', "gateway_connections"),
        *("gateway_resend_buffer_bytes", "gateway_outbox_packets", "gateway_blocked_sessions"),
    ):
        assert metrics[name] == 0, f"{node}: {name} is {metrics[name]}"


# --- The tests --------------------------------------------------------------------------------------------------------


async def test_nothing_is_left_of_sessions_however_they_end(tmp_path: Path, figures: Figures) -> None:
    async with cluster(tmp_path, **SETTINGS) as stack, AsyncExitStack() as exits:
        n1, n2, n3 = (stack.node_url(node) for node in stack.node_names)
        closing = await people(exits, stack.url, 0)
        hopping = await people(exits, [n1, n3], 1 * EACH)
        absent = await ghosts(exits, n3, 2 * EACH)
        orphans = await ghosts(exits, n1, 3 * EACH)
        stubborn = await ghosts(exits, n2, 4 * EACH)
        moved = await ghosts(exits, n2, 5 * EACH)
        everybody = [member.session.id for member in (*closing, *hopping)]
        everybody += [ghost.session for ghost in (*absent, *orphans, *stubborn, *moved)]
        assert len(set(everybody)) == 6 * EACH
        before = await dump(stack.grid_url)
        assert len(traces(before, everybody)) > len(everybody) * PUBLISHES, "there must be something to find"

        # Closed, absent for a window, moved and then absent, orphaned, failed over and closed, told to go in vain.
        await asyncio.gather(*(member.close() for member in closing))
        for ghost in absent:
            await ghost.vanish()
        for ghost in moved:
            await ghost.move(n3)
            await ghost.vanish()
        await asyncio.gather(*(ghost.babble() for ghost in orphans))
        await stack.kill_node("n1")
        loop = asyncio.get_running_loop()
        killed = loop.time()
        for ghost in orphans:
            await ghost.vanish()
        await eventually(lambda: all(member.recoveries for member in hopping), "who could has failed over")
        assert {each.outcome for member in hopping for each in member.recoveries} == {Outcome.FAILED_OVER}
        await asyncio.gather(*(member.close() for member in hopping))
        assert await stack.drain_node("n2") == 0
        for ghost in stubborn:
            await ghost.vanish()
        await until_nothing_is_left(stack, everybody, {"n3"}, within=PATIENT + 20)
        gone = loop.time() - killed
        records = await judge_records(stack, everybody)
        await eventually(lambda: no_reason_is_left(stack), "the reasons of ends vanish", within=PATIENT + 10)
        forgotten = loop.time() - killed
        after = await dump(stack.grid_url)
        assert traces(after, everybody) == []
        assert unexpected(after) == []
        await assert_node_is_empty(stack, "n3")
        figures(
            f"{len(everybody)} sessions ended in 6 ways, {len(traces(before, everybody))} traces in {len(before)} keys "
            f"before, 0 after {gone:.1f} s; {records} records of ends were left then, 0 after {forgotten:.1f} s; "
            f"{len(after)} keys remain, of topics and of the living node"
        )


@pytest.mark.thorough
async def test_nothing_is_left_when_all_nodes_die_at_once(tmp_path: Path, figures: Figures) -> None:
    """Who comes back goes on; who does not is ended by nodes that have never heard of him."""
    async with cluster(tmp_path, **SETTINGS | {"window_default": 30}) as stack, AsyncExitStack() as exits:
        staying = await people(exits, stack.url, 0)
        lost = [
            ghost
            for number, node in enumerate(stack.node_names, 1)
            for ghost in await ghosts(exits, stack.node_url(node), number * EACH)
        ]
        ids = [member.session.id for member in staying]
        lost_ids = [ghost.session for ghost in lost]

        await asyncio.gather(*(ghost.babble() for ghost in lost))
        published = [asyncio.create_task(member.session.publish("root-0-0/value", 0)) for member in staying]
        await asyncio.gather(*(stack.kill_node(node) for node in stack.node_names))
        loop = asyncio.get_running_loop()
        killed = loop.time()
        for ghost in lost:
            await ghost.vanish()
        await asyncio.gather(*(stack.start_node(node) for node in stack.node_names))
        receipts = await asyncio.gather(*published)
        await eventually(lambda: all(member.recoveries for member in staying), "who can is back")

        await eventually(lambda: _are_gone(stack, lost_ids), "nothing is left of those who are not", within=30)
        gone = loop.time() - killed
        grid = await dump(stack.grid_url)
        assert all(KEYS.session(SessionId(session)) in grid for session in ids)
        assert [member.session.id for member in staying] == ids
        assert {each.outcome for member in staying for each in member.recoveries} == {Outcome.FAILED_OVER}
        assert len({receipt.version for receipt in receipts}) == len(receipts)
        await asyncio.gather(*(member.close() for member in staying))
        await until_nothing_is_left(stack, [*ids, *lost_ids], set(stack.node_names))
        for node in stack.node_names:
            await assert_node_is_empty(stack, node)
        figures(
            f"3 of 3 nodes killed and started again: {len(ids)} sessions went on, nothing of {len(lost_ids)} others "
            f"was left after {gone:.1f} s, nothing of anybody when the rest were closed"
        )


async def _are_gone(stack: Stack, sessions: Sequence[str]) -> bool:
    return not traces(await dump(stack.grid_url), sessions)
