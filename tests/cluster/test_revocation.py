"""Revoked means refused, on every node, within a second, whatever dies meanwhile (P8).

Real nodes, Redis, HAProxy and JSON Web Tokens. An administrator revokes by the admin API of one node; what the nodes do
is seen by clients that do not go away by themselves.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import aiohttp
import jwt
import pytest

from gateway.adapters.redis.keys import Keys
from gateway.core.policy.revocations import RevocationKind
from gateway.core.wire.codes import REVOKED, ErrorCode
from gateway.local.grid_server import GridRestart
from gateway.local.stack import Stack
from tests.cluster.crowds import Figures
from tests.cluster.grid_reader import PREFIX, GridReader
from tests.integration.admin.support import Admins
from tests.support.faults import eventually
from tests.support.raw_client import Packet, RawClient
from tests.support.stack import cluster
from tests.support.times import scaled

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy, pytest.mark.promise("P8")]

SESSIONS: Final = 300
"""Of the principal that is revoked while all of them are connected."""

OF_A_CREDENTIAL: Final = 30
BYSTANDERS: Final = 20
AT_ONCE: Final = 30
"""Connections that are opened at the same time: two busy cores cannot serve more at once anyway."""

ON_ALL: Final = 10
"""Sessions that are tried on every node, one after the other; the others on one."""

PROMISED: Final = scaled(1.0)
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


class Administrator:
    """Whoever is on call, at the admin API of any node."""

    def __init__(self, stack: Stack, http: aiohttp.ClientSession) -> None:
        self._stack = stack
        self._http = http

    async def revoke(self, node: str, kind: RevocationKind, value: str) -> float:
        """Revoke by a node; return when that was asked for."""
        asked = time.monotonic()
        assert await self.try_to_revoke(node, kind, value) == HTTPStatus.CREATED
        return asked

    async def try_to_revoke(self, node: str, kind: RevocationKind, value: str) -> int:
        """Ask a node to revoke; return the status."""
        body = {"kind": kind.value, "value": value, "reason": "a test"}
        async with self._http.post(self._stack.admin_url(node, "/v1/revocations"), json=body) as answer:
            if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
                assert int(answer.headers["Retry-After"]) > 0
            return answer.status

    async def revoked(self, node: str) -> set[str]:
        """List what is revoked, as a node knows it."""
        url = self._stack.admin_url(node, "/v1/revocations")
        async with self._http.get(url) as answer:
            page = await answer.json()
        assert page["cursor"] is None
        return {f"{each['kind']}:{each['value']}" for each in page["items"]}


@asynccontextmanager
async def administrator(stack: Stack, admins: Admins) -> AsyncIterator[Administrator]:
    headers = {"Authorization": f"Bearer {admins.tokens['operator']}"}
    async with aiohttp.ClientSession(headers=headers) as http:
        yield Administrator(stack, http)


async def closed(seats: Iterable[Seat], since: float) -> float:
    """Wait until all are closed as revoked; return how long after *since* the last one was."""

    async def one(seat: Seat) -> float:
        assert await seat.raw.closed() == REVOKED.code
        last = time.monotonic()
        assert (seat.raw.seen[-1]["type"], seat.raw.seen[-1]["code"]) == ("error", ErrorCode.REVOKED)
        return last

    return max(await asyncio.gather(*(one(seat) for seat in seats))) - since


async def assert_refused(stack: Stack, seats: Sequence[Seat], nodes: Sequence[str]) -> int:
    """Try to resume: each on one node, in turn, and some on all of them. Return how often that was refused."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(index: int, seat: Seat) -> list[tuple[str, int | None]]:
        found = []
        chosen = nodes if index < ON_ALL else (nodes[index % len(nodes)],)
        for attempt, node in enumerate(chosen, start=1):
            async with turn, RawClient(stack.node_url(node)) as raw:
                answer = await raw.resume(seat.token, attempt=attempt)
                assert answer["type"] == "error", answer
                found.append((answer["code"], await raw.closed()))
        return found

    tries = await asyncio.gather(*(one(index, seat) for index, seat in enumerate(seats)))
    found = Counter(answer for some in tries for answer in some)
    assert found == {(ErrorCode.REVOKED.value, REVOKED.code): found.total()}
    return found.total()


async def assert_locked_out(stack: Stack, tickets: Iterable[str], nodes: Iterable[str]) -> None:
    for node in nodes:
        for shown in tickets:
            async with RawClient(stack.node_url(node)) as raw:
                await raw.send({"type": "hello", "principal": "", "secret": shown})
                assert (await raw.expect("error"))["code"] == ErrorCode.REVOKED
                assert await raw.closed() == REVOKED.code


async def all_know(admin: Administrator, nodes: Iterable[str], names: set[str]) -> None:
    """Wait until all nodes know of exactly these revocations."""

    async def agreed() -> bool:
        return all([await admin.revoked(node) == names for node in nodes])

    await eventually(agreed, f"all nodes know of {len(names)} revocations")


async def in_the_grid(reader: GridReader, names: set[str]) -> None:
    """Wait until the grid holds exactly these revocations."""

    async def holds() -> bool:
        return set(await reader.call("HKEYS", Keys(PREFIX).revocations)) == names

    await eventually(holds, f"the grid holds {len(names)} revocations")


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
    admins = Admins.make(tmp_path)
    settings: dict[str, Any] = {
        "auth": f"jwt:{tmp_path / 'jwt.toml'}",
        "admin_tokens_file": admins.file,
        "lease": scaled(4.0),
        "lease_renew": scaled(1.0),
    }
    async with (
        cluster(tmp_path, nodes=3, **settings) as stack,
        GridReader(stack.grid_url) as reader,
        administrator(stack, admins) as admin,
        house(stack) as home,
    ):
        nodes = stack.node_names
        alice = await home.seats(SESSIONS, "alice", "good")
        leaked, fine = await asyncio.gather(
            home.seats(OF_A_CREDENTIAL, "bob", "leaked"), home.seats(BYSTANDERS, "bob", "fine")
        )
        (thief, *rest) = await home.seats(1 + BYSTANDERS, "carol", "good")
        assert {seat.node for seat in alice} == set(nodes)

        # A principal, of whom some sessions are not connected: rung 1 would serve them.
        away = await home.seats(len(nodes), "alice", "good")
        await asyncio.gather(*(seat.raw.cut() for seat in away))
        took = {"principal": await closed(alice, await admin.revoke("n1", RevocationKind.PRINCIPAL, "alice"))}
        refused = await assert_refused(stack, [*away, *alice], nodes)
        await gone(reader, [*alice, *away])
        # A credential, and a session.
        took["credential"] = await closed(leaked, await admin.revoke("n2", RevocationKind.CREDENTIAL, "leaked"))
        took["session"] = await closed([thief], await admin.revoke("n3", RevocationKind.SESSION, thief.session))
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
        await admin.revoke("n1", RevocationKind.PRINCIPAL, "dave")
        survivors = [node for node in nodes if node != VICTIM]
        refused += await assert_refused(stack, orphans, survivors)
        await gone(reader, orphans)

        # Redis is unreachable: nothing can be revoked. It comes back without anything: the nodes know.
        names = {"principal:alice", "credential:leaked", f"session:{thief.session}", "principal:dave"}
        await stack.grid.process.kill()
        status = await admin.try_to_revoke("n1", RevocationKind.PRINCIPAL, "carol")
        assert status == HTTPStatus.SERVICE_UNAVAILABLE
        await stack.restart_redis(GridRestart.EMPTY)
        async with GridReader(stack.grid_url) as again:
            await in_the_grid(again, names)
        await stack.start_node(VICTIM)
        await all_know(admin, nodes, names)
        refused += await assert_refused(stack, [thief], nodes)
        await assert_locked_out(stack, (*locked_out, ticket("dave", "good")), nodes)
        assert all([await seat.is_served() for seat in rest if seat.node != VICTIM]), "what was refused did not happen"
        after = {name: f"{seconds * 1000:.0f} ms" for name, seconds in took.items()}
        figures(
            f"{SESSIONS} sessions of a principal on {len(nodes)} nodes closed {after['principal']} after it was "
            f"revoked, {OF_A_CREDENTIAL} of a token id after {after['credential']}, one session after "
            f"{after['session']}; "
            f"{refused} resumes refused, none served"
        )
