"""Revoked means refused, on every node, within a second, whatever dies meanwhile (P8).

Real nodes, Redis, HAProxy and JSON Web Tokens. What is revoked is written by a grid connection of the test's own, so
that no node knows of it before the others; what the nodes do is seen by clients that do not go away by themselves.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import jwt
import pytest

from gateway.adapters.memory import MemoryEventLog, MemoryMetrics
from gateway.adapters.redis import RedisGrid
from gateway.core.codes import REVOKED, ErrorCode
from gateway.core.revocations import Revocation, RevocationKind
from gateway.core.types import Incarnation, NodeId, NodeRef
from gateway.local.grid_server import GridRestart
from gateway.local.stack import Stack
from gateway.ports import AllRevocations, Grid, GridState
from tests.cluster.support_a import PREFIX, Figures, GridReader
from tests.support.faults import eventually
from tests.support.raw_client import PATIENCE, Packet, RawClient
from tests.support.stack import cluster

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy]

SESSIONS: Final = 300
"""Of the principal that is revoked while all of them are connected."""

OF_A_CREDENTIAL: Final = 30
BYSTANDERS: Final = 20
AT_ONCE: Final = 30
"""Connections that are opened at the same time: two busy cores cannot serve more at once anyway."""

PROMISED: Final = 1.0
"""Seconds until a revocation is effective everywhere (protocol 11.7)."""

VICTIM: Final = "n3"
SECRET: Final = secrets.token_urlsafe(32)


@dataclass(frozen=True)
class Seat:
    """A connected session."""

    raw: RawClient
    welcome: Packet

    @property
    def session(self) -> str:
        return str(self.welcome["session"])

    @property
    def token(self) -> str:
        return str(self.welcome["token"])

    @property
    def node(self) -> str:
        return str(self.welcome["node"])

    async def is_served(self) -> bool:
        await self.raw.send({"type": "ping"})
        return bool(await self.raw.expect("pong"))


class House:
    """Opens sessions, and cuts what is left of them at the end."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.raws: list[RawClient] = []
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def seats(self, count: int, principal: str, credential: str, *, url: str = "") -> list[Seat]:
        return await asyncio.gather(*(self._seat(principal, credential, url) for _ in range(count)))

    async def _seat(self, principal: str, credential: str, url: str) -> Seat:
        async with self._turn:
            raw = RawClient(url or self.stack.url)
            self.raws.append(raw)
            await raw.connect()
            welcome = await raw.hello(principal, secret=ticket(principal, credential), window=30.0)
            await raw.send({"type": "ack", "received": 0})
            return Seat(raw, welcome)


@asynccontextmanager
async def house(stack: Stack) -> AsyncIterator[House]:
    opened = House(stack)
    try:
        yield opened
    finally:
        await asyncio.gather(*(raw.cut() for raw in opened.raws))


def ticket(principal: str, credential: str) -> str:
    """Make a JSON Web Token as an identity provider does."""
    claims = {"iss": "test", "aud": "gateway", "sub": principal, "jti": credential, "exp": time.time() + 3600}
    return jwt.encode(claims, SECRET, algorithm="HS256")


@asynccontextmanager
async def administrator(stack: Stack) -> AsyncIterator[Grid]:
    """Connect to the grid beside all nodes."""
    grid = RedisGrid(
        stack.grid_url,
        prefix=PREFIX,
        node=NodeRef(NodeId("administrator"), Incarnation("test")),
        metrics=MemoryMetrics(),
        log=MemoryEventLog(),
    )
    await grid.start()
    try:
        yield grid
    finally:
        await grid.close()


async def revoke(grid: Grid, kind: RevocationKind, value: str) -> float:
    """Revoke; return when the grid had it."""
    await grid.revocations.add(Revocation(kind=kind, value=value, made=time.time()))
    return time.monotonic()


async def closed(seats: Iterable[Seat], since: float) -> float:
    """Wait until all are closed as revoked; return how long after *since* the last one was."""

    async def one(seat: Seat) -> float:
        assert await seat.raw.closed() == REVOKED.code
        last = time.monotonic()
        assert (seat.raw.seen[-1]["type"], seat.raw.seen[-1]["code"]) == ("error", ErrorCode.REVOKED)
        return last

    return max(await asyncio.gather(*(one(seat) for seat in seats))) - since


async def assert_refused(stack: Stack, seats: Sequence[Seat], nodes: Sequence[str], *, each_on_all: int = 5) -> int:
    """Try to resume: each on one node, in turn, and some on all of them. Return how often that was refused."""
    tries = [(seat, nodes[index % len(nodes)]) for index, seat in enumerate(seats)]
    tries += [(seat, node) for seat in seats[:each_on_all] for node in nodes]
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(seat: Seat, node: str, attempt: int) -> tuple[str, int | None]:
        async with turn, RawClient(stack.node_url(node)) as raw:
            answer = await raw.resume(seat.token, attempt=attempt)
            return str(answer.get("code", answer["type"])), await raw.closed() if answer["type"] == "error" else None

    found = Counter(
        await asyncio.gather(*(one(seat, node, attempt) for attempt, (seat, node) in enumerate(tries, start=1)))
    )
    assert found == {(ErrorCode.REVOKED.value, REVOKED.code): len(tries)}
    return len(tries)


async def assert_locked_out(stack: Stack, tickets: Iterable[str], nodes: Iterable[str]) -> None:
    for node in nodes:
        for shown in tickets:
            async with RawClient(stack.node_url(node)) as raw:
                await raw.send({"type": "hello", "principal": "", "secret": shown})
                assert (await raw.expect("error"))["code"] == ErrorCode.REVOKED
                assert await raw.closed() == REVOKED.code


async def restored(grid: Grid, names: set[str]) -> None:
    """Wait until the grid holds these revocations again."""
    await eventually(lambda: grid.state is GridState.UP, "the administrator is back")
    held: set[str] = set()
    async with asyncio.timeout(4 * PATIENCE):
        async for news in grid.revocations.follow():
            if isinstance(news, AllRevocations):
                held = {each.name for each in news.revocations}
            else:
                held |= {each.name for each in news.changes}
            if held == names:
                return


async def gone(grid: GridReader, seats: Iterable[Seat]) -> None:
    """Wait until the grid holds nothing of these sessions."""
    sessions = [seat.session for seat in seats]

    async def none_left() -> bool:
        keys = await grid.of_sessions()
        return not [key for key in keys for session in sessions if session in key]

    await eventually(none_left, "nothing is left of the revoked sessions")


async def test_the_revoked_are_out_everywhere_within_a_second(tmp_path: Path, figures: Figures) -> None:
    (tmp_path / "jwt.secret").write_text(SECRET)
    (tmp_path / "jwt.toml").write_text(
        'issuer = "test"\naudience = ["gateway"]\nalgorithms = ["HS256"]\nsecret_file = "jwt.secret"\n'
    )
    async with (
        cluster(tmp_path, nodes=3, auth=f"jwt:{tmp_path / 'jwt.toml'}", lease=4, lease_renew=1) as stack,
        GridReader(stack.grid_url) as reader,
        administrator(stack) as grid,
        house(stack) as home,
    ):
        nodes = stack.node_names
        alice = await home.seats(SESSIONS, "alice", "good")
        leaked, fine = await asyncio.gather(
            home.seats(OF_A_CREDENTIAL, "bob", "leaked"), home.seats(BYSTANDERS, "bob", "fine")
        )
        (thief, *rest) = await home.seats(1 + BYSTANDERS, "carol", "good")
        spread = Counter(seat.node for seat in alice)
        assert set(spread) == set(nodes)

        # A principal, of whom some sessions are not connected: rung 1 would serve them.
        away = await home.seats(len(nodes), "alice", "good")
        await asyncio.gather(*(seat.raw.cut() for seat in away))
        took = {"principal": await closed(alice, await revoke(grid, RevocationKind.PRINCIPAL, "alice"))}
        refused = await assert_refused(stack, [*away, *alice], nodes)
        await gone(reader, [*alice, *away])
        # A credential, and a session.
        took["credential"] = await closed(leaked, await revoke(grid, RevocationKind.CREDENTIAL, "leaked"))
        took["session"] = await closed([thief], await revoke(grid, RevocationKind.SESSION, thief.session))
        refused += await assert_refused(stack, [thief, *leaked], nodes)
        await gone(reader, [thief, *leaked])
        for name, seconds in took.items():
            assert seconds <= PROMISED, f"a {name} took {seconds:.3f} s"
        assert all([await seat.is_served() for seat in (*fine, *rest)]), "others are not disturbed"
        locked_out = (ticket("alice", "new"), ticket("bob", "leaked"))
        await assert_locked_out(stack, locked_out, nodes)

        # A node dies, and those whose sessions it had are revoked before anybody else has them: rung 4.
        orphans = await home.seats(BYSTANDERS, "dave", "good", url=stack.node_url(VICTIM))
        await stack.kill_node(VICTIM)
        await revoke(grid, RevocationKind.PRINCIPAL, "dave")
        refused += await assert_refused(stack, orphans, [node for node in nodes if node != VICTIM])
        await gone(reader, orphans)

        # Redis comes back without anything: the nodes know.
        await stack.restart_redis(GridRestart.EMPTY)
        await restored(grid, {"principal:alice", "credential:leaked", f"session:{thief.session}", "principal:dave"})
        await stack.start_node(VICTIM)
        refused += await assert_refused(stack, [thief], nodes)
        await assert_locked_out(stack, (*locked_out, ticket("dave", "good")), nodes)
        after = {name: f"{seconds * 1000:.0f} ms" for name, seconds in took.items()}
        figures(
            f"{SESSIONS} sessions of a principal on {len(nodes)} nodes closed {after['principal']} after it was "
            f"revoked, {OF_A_CREDENTIAL} of a token id after {after['credential']}, one session after "
            f"{after['session']}; "
            f"{refused} resumes refused, none served"
        )
