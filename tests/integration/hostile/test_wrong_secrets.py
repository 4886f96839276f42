"""Strangers who show wrong secrets as fast as they can, to whole nodes that verify them: nobody waits for that (P20).

What is counted is work: how many hashes were begun, whose secrets they were of, and in which order.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from ipaddress import ip_network
from itertools import count
from pathlib import Path
from typing import Any, Final, Self

import pytest
from aiohttp import ClientError, web

from gateway.adapters.authentication import PLACES, HashParameters, SecretHash, hash_secret, users_line
from gateway.adapters.memory import MemoryGridServer
from gateway.app.security import verifications
from gateway.app.security.authentication import REFRESHES_AT_ONCE
from gateway.app.security.verifications import WAITING_PER_PLACE
from gateway.core.types import SessionId
from gateway.core.wire.codes import TRY_LATER, UNAUTHENTICATED
from gateway.settings import CallbackUsers, StaticUsers
from tests.support.issuers import HttpStandIn
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient
from tests.support.times import PATIENCE, scaled, time_limit

pytestmark = pytest.mark.promise("P20")

USERS: Final = 12

VICTIMS: Final = 80
"""More principals of the file, of which the attackers know the names: more than a queue holds."""

BEHIND_A_PROXY: Final[dict[str, Any]] = {
    "trusted_proxies": (ip_network("127.0.0.1/32"),),
    "rate_address_verifications": 0.0,
    "rate_principal_verifications": 0.0,
}
"""The tests pass for a proxy of clients elsewhere. Turns are what they are about: nobody waits for a rate."""

ATTACKER: Final = {"X-Forwarded-For": "127.0.0.1"}
"""Where limits by address do not hold (``limit_exempt``)."""


def home(number: int) -> dict[str, str]:
    return {"X-Forwarded-For": f"192.0.2.{number}"}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is refused for the time that this machine takes to fill a queue."""
    monkeypatch.setattr(verifications, "PATIENCE", 3600.0)


class Hashing:
    """Counts hashes, and lets those of wrong secrets end only when they may.

    Attributes:
        secrets: of all hashes that were begun, in order.
        ended: how many of them have ended.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.secrets: list[str] = []
        self.ended = 0
        self._counting = threading.Lock()
        self._go = threading.Event()
        self._go.set()
        genuine = SecretHash.matches

        def matches(hashed: SecretHash, secret: str) -> bool:
            self.secrets.append(secret)
            if secret.startswith("wrong"):
                assert self._go.wait(scaled(PATIENCE))
            try:
                return genuine(hashed, secret)
            finally:
                with self._counting:
                    self.ended += 1

        monkeypatch.setattr(SecretHash, "matches", matches)

    def hold(self) -> None:
        """Let no hash of a wrong secret end."""
        self._go.clear()

    def release(self) -> None:
        """Let them end, all of them and those to come."""
        self._go.set()

    @property
    def running(self) -> int:
        """Hashes that have begun and not ended."""
        return len(self.secrets) - self.ended

    @property
    def wrong(self) -> int:
        return sum(secret.startswith("wrong") for secret in self.secrets)


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hashing]:
    made = Hashing(monkeypatch)
    yield made
    made.release()


@pytest.fixture
def users(tmp_path: Path) -> StaticUsers:
    return users_with(tmp_path, HashParameters(2, 1, 1))


def victim(number: int) -> str:
    return f"victim{number % VICTIMS}"


def users_with(folder: Path, parameters: HashParameters) -> StaticUsers:
    lines = [users_line(f"user{number}", hash_secret(f"good {number}", parameters)) for number in range(USERS)]
    guessed = hash_secret("what nobody guesses", parameters)
    lines += [users_line(victim(number), guessed) for number in range(VICTIMS)]
    file = folder / "users"
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return StaticUsers(file)


class Attack:
    """Shows wrong secrets, each over a connection of its own.

    Args:
        node: whom.
        principal: names the principal of each attempt.
    """

    def __init__(self, node: TestNode, principal: Callable[[int], str] = victim) -> None:
        self._node = node
        self._principal = principal
        self._numbers = count()
        self._stack = AsyncExitStack()
        self.clients: list[RawClient] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def hello(self, headers: dict[str, str] = ATTACKER) -> RawClient:
        """Show one, and do not wait for the answer."""
        number = next(self._numbers)
        client = await self._stack.enter_async_context(RawClient(self._node.url, headers))
        await client.send({"type": "hello", "principal": self._principal(number), "secret": f"wrong {number}"})
        self.clients.append(client)
        return client

    async def fill(self, hashing: Hashing) -> None:
        """Take all places that an attacker gets, and as much of the queue as there is."""
        sent, before = PLACES * (WAITING_PER_PLACE + 1), crowded(self._node)
        assert not hashing.running
        for _ in range(sent):
            await self.hello()
        await eventually(lambda: hashing.running + waiting(self._node) + crowded(self._node) - before == sent)
        assert hashing.running >= 1
        assert waiting(self._node) == PLACES * WAITING_PER_PLACE

    async def answered(self) -> None:
        """Wait until each attempt was refused; when none waits, the last of them may not be hashed yet."""
        for client in self.clients:
            await client.closed()
        self.clients.clear()


def waiting(node: TestNode) -> float:
    return metric(node, "gateway_verifications_waiting ")


def crowded(node: TestNode) -> float:
    return metric(node, 'gateway_verifications_refused_total{reason="crowded"}')


def metric(node: TestNode, beginning: str) -> float:
    lines = node.gateway.metrics.render().decode().splitlines()
    (line,) = [each for each in lines if each.startswith(beginning)]
    return float(line.rpartition(" ")[2])


async def log_in(node: TestNode, number: int, headers: dict[str, str]) -> dict[str, Any]:
    async with RawClient(node.url, headers) as client:
        return await client.hello(f"user{number}", secret=f"good {number}")


PRINCIPALS: Final[dict[str, Callable[[int], str]]] = {
    "one principal": lambda _: "user0",
    "principals of the file": victim,
}


@pytest.mark.parametrize("principal", PRINCIPALS)
async def test_logins_from_elsewhere_pass_a_queue_of_wrong_ones(
    users: StaticUsers, hashing: Hashing, principal: str
) -> None:
    async with running_node(auth=users, **BEHIND_A_PROXY) as node, Attack(node, PRINCIPALS[principal]) as attack:
        for number in range(1, 5):
            hashing.hold()
            await attack.fill(hashing)
            begun, before = len(hashing.secrets), crowded(node)
            login = asyncio.create_task(log_in(node, number, home(number)))
            await eventually(lambda before=before: crowded(node) == before + 1)  # type: ignore[misc]
            hashing.release()

            assert (await login)["type"] == "welcome"
            # Those that were being hashed had begun before; at times one of those behind has its turn.
            assert hashing.secrets.index(f"good {number}") - begun <= 1 + PLACES
            await attack.answered()


async def test_who_was_verified_before_gets_in_whatever_else_waits_also_from_the_attackers_address(
    users: StaticUsers, hashing: Hashing
) -> None:
    async with running_node(auth=users, **BEHIND_A_PROXY) as node, Attack(node) as attack:
        assert (await log_in(node, 1, ATTACKER))["type"] == "welcome"
        hashing.hold()
        await attack.fill(hashing)
        begun = len(hashing.secrets)

        for _ in range(20):
            assert (await log_in(node, 1, ATTACKER))["type"] == "welcome"
        assert len(hashing.secrets) == begun


async def test_who_finds_no_place_is_told_when_to_come_again(users: StaticUsers, hashing: Hashing) -> None:
    async with running_node(auth=users, **BEHIND_A_PROXY) as node, Attack(node) as attack:
        hashing.hold()
        await attack.fill(hashing)
        refused = await attack.hello()
        error = await refused.expect("error")
        assert (error["code"], error["retry_after"] > 0) == ("try_later", True)
        assert await refused.closed() == TRY_LATER.code
        hashing.release()
        assert await attack.clients[0].closed() == UNAUTHENTICATED.code


@pytest.mark.parametrize("real", [HashParameters(2**12, 8, 1)], ids=str)
@pytest.mark.parametrize("principal", PRINCIPALS)
async def test_every_login_gets_in_while_wrong_hellos_never_end(
    tmp_path: Path, principal: str, real: HashParameters
) -> None:
    """With real hashes, and attackers that come again as soon as they are refused: more than the places can do."""
    users = users_with(tmp_path, real)
    numbers = count()

    async def attack(node: TestNode) -> None:
        while True:
            number = next(numbers)
            async with RawClient(node.url, ATTACKER) as client:
                with suppress(ClientError):
                    await client.send(
                        {"type": "hello", "principal": PRINCIPALS[principal](number), "secret": f"wrong {number}"}
                    )
                    await client.closed()

    async with running_node(auth=users, **BEHIND_A_PROXY) as node:
        attackers = [asyncio.create_task(attack(node)) for _ in range(15)]
        try:
            await eventually(lambda: metric(node, 'gateway_authentications_total{outcome="refused"}') > 20)
            for number in range(1, USERS):
                assert (await log_in(node, number, home(number)))["type"] == "welcome"
                assert (await log_in(node, number, ATTACKER))["type"] == "welcome", "verified before"
            assert not node.gateway.node.readiness.reasons()
        finally:
            for each in attackers:
                each.cancel()
            await asyncio.gather(*attackers, return_exceptions=True)


# --- Resumes ----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def slow_service(tmp_path: Path) -> AsyncIterator[CallbackUsers]:
    """A callback that knows everybody whose secret is good, and never answers about others."""
    never = asyncio.Event()

    async def who(request: web.Request) -> web.Response:
        if (await request.json())["secret"].startswith("wrong"):
            await never.wait()
        return web.json_response({})

    async with HttpStandIn(who) as service:
        file = tmp_path / "callback.toml"
        file.write_text(f'url = "{service.url}/who"\nconcurrency = 2\ntimeout = 30.0', "utf-8")
        yield CallbackUsers(file)
        never.set()


@pytest.mark.parametrize("kind", ["hashes", "callback"])
async def test_resumes_without_a_secret_wait_for_no_verification(
    users: StaticUsers, slow_service: CallbackUsers, hashing: Hashing, kind: str
) -> None:
    """No place among those who ask the grid is held meanwhile, though there is but one."""
    memory = MemoryGridServer()
    settings: dict[str, Any] = {
        "auth": users if kind == "hashes" else slow_service,
        "memory": memory,
        "claims_at_once": 1,
    }
    async with (
        running_node("n1", **settings, **BEHIND_A_PROXY) as n1,
        running_node("n2", **settings, **BEHIND_A_PROXY) as n2,
        Attack(n2) as attack,
    ):
        welcomes = [await log_in(n1, number, home(number)) for number in range(USERS)]
        hashing.hold()
        for _ in range(PLACES * (WAITING_PER_PLACE + 1)):
            await attack.hello()
        await eventually(lambda: waiting(n2) == PLACES * WAITING_PER_PLACE)
        begun = len(hashing.secrets)

        for attempt in (1, 2):
            for which, before in enumerate(welcomes):
                async with RawClient(n2.url, home(which)) as client:
                    after = await client.resume(before["token"], attempt=attempt, received=0, oldest=1)
                    assert (after["type"], after["session"]) == ("welcome", before["session"])
                    welcomes[which] = after
        assert len(hashing.secrets) == begun


async def test_a_wrong_secret_with_the_token_of_an_ended_session_costs_no_hash(
    users: StaticUsers, hashing: Hashing
) -> None:
    async with running_node(auth=users, **BEHIND_A_PROXY) as node:
        async with RawClient(node.url, home(1)) as client:
            ended = await client.hello("user1", secret="good 1")
            await client.send({"type": "bye"})
            await client.closed()
        begun = len(hashing.secrets)
        hashing.hold()

        async def resume(attempt: int, **changes: Any) -> dict[str, Any]:
            async with RawClient(node.url, ATTACKER) as client:
                shown = {"principal": "user1", "secret": f"wrong {attempt}"} | changes
                return await client.resume(ended["token"], attempt=attempt, received=0, oldest=1, **shown)

        answers = await asyncio.gather(*map(resume, range(1, 61)))

        assert {each["code"] for each in answers} == {"session_closed"}
        assert len(hashing.secrets) == begun


@pytest.mark.parametrize("where", ["n1", "n2"])
async def test_what_a_resume_is_refused_for_anyway_is_told_before_its_secret_is_hashed(
    users: StaticUsers, hashing: Hashing, where: str
) -> None:
    """Whether the node that is asked holds the session or not; a secret that is worth a look gets one."""
    memory = MemoryGridServer()
    async with (
        running_node("n1", auth=users, memory=memory) as n1,
        running_node("n2", auth=users, memory=memory) as n2,
    ):
        node = {"n1": n1, "n2": n2}[where]
        async with RawClient(n1.url) as client:
            first = await client.hello("user1", secret="good 1")
        async with RawClient(n1.url) as client:
            second = await client.resume(first["token"], attempt=5, received=0, oldest=1)
            await client.send({"type": "ack", "received": 0})
            await eventually(lambda: stored(memory, first["session"]).confirmed == 2)
        begun = len(hashing.secrets)
        for token, attempt, code in (
            (first["token"], 6, "token_superseded"),
            (second["token"], 5, "stale_attempt"),
            ("nonsense", 6, "token_invalid"),
        ):
            async with RawClient(node.url) as client:
                refused = await client.resume(
                    token, attempt=attempt, received=0, oldest=1, principal="user1", secret="wrong"
                )
                assert refused["code"] == code
        assert len(hashing.secrets) == begun
        for secret, kind in (("wrong", "error"), ("good 1", "welcome")):
            async with RawClient(node.url) as client:
                answer = await client.resume(
                    second["token"], attempt=6, received=0, oldest=1, principal="user1", secret=secret
                )
                assert answer["type"] == kind


def stored(memory: MemoryGridServer, session: str) -> Any:
    return memory.snapshot().sessions.find(SessionId(session))


# --- Who does not wait for the answer ---------------------------------------------------------------------------------


async def test_nothing_is_hashed_for_those_who_have_hung_up(users: StaticUsers, hashing: Hashing) -> None:
    async with running_node(auth=users, **BEHIND_A_PROXY) as node, Attack(node) as attack:
        hashing.hold()
        await attack.fill(hashing)
        for client in attack.clients[PLACES:]:
            await client.cut()
        connections = node.gateway.node.connections._open
        await eventually(lambda: sum(not connection.is_closing for connection in connections) == PLACES)
        login = asyncio.create_task(log_in(node, 1, ATTACKER))
        # It finds a place though the queue was full: of those who are not there any more.
        await eventually(lambda: waiting(node) == 1 or "good 1" in hashing.secrets)
        hashing.release()

        assert (await login)["type"] == "welcome"
        await eventually(lambda: waiting(node) == 0)
        assert hashing.wrong <= PLACES
        assert len(node.gateway.node.sessions) == 1


async def test_no_session_is_opened_for_who_has_hung_up(users: StaticUsers, hashing: Hashing) -> None:
    async with running_node(auth=users) as node:
        for number in range(USERS):
            client = RawClient(node.url)
            await client.connect()
            await client.send({"type": "hello", "principal": f"user{number}", "secret": f"good {number}"})
            await client.cut()
        await eventually(lambda: not len(node.gateway.node.connections))
        opened = metric(node, "gateway_sessions_opened_total ")
        assert len(hashing.secrets) <= USERS
        assert opened <= len(hashing.secrets), "only for those who hung up too late to be noticed"


# --- Fresh credentials on an open connection --------------------------------------------------------------------------


async def test_a_session_shows_credentials_only_so_often_and_goes_on(users: StaticUsers, hashing: Hashing) -> None:
    async with running_node(auth=users) as node, RawClient(node.url) as client:
        await client.hello("user1", secret="good 1")
        begun = len(hashing.secrets)
        requests = range(1, 31)
        await client.send(
            *(
                {
                    "id": number,
                    "type": "authenticate",
                    "request": number,
                    "principal": "user1",
                    "secret": f"wrong {number}",
                }
                for number in requests
            )
        )
        async with time_limit(PATIENCE):
            errors = [(await client.expect("reply"))["error"] for _ in requests]

        codes = [each["code"] for each in errors]
        assert codes[:REFRESHES_AT_ONCE] == ["unauthenticated"] * REFRESHES_AT_ONCE
        assert codes.count("authentication_unavailable") >= len(requests) - REFRESHES_AT_ONCE - 1
        assert all(each["retry_after"] > 0 for each in errors if each["code"] == "authentication_unavailable")
        assert len(hashing.secrets) - begun == codes.count("unauthenticated")
        await client.send({"id": 31, "type": "subscribe", "request": 31, "selector": "a/**"})
        assert "error" not in await client.expect("reply")


async def test_fresh_credentials_wait_like_any_others_and_are_not_hashed_for_who_left(
    users: StaticUsers, hashing: Hashing
) -> None:
    async with running_node(auth=users, **BEHIND_A_PROXY) as node, Attack(node) as attack:
        gone, there = RawClient(node.url, home(1)), RawClient(node.url, home(2))
        for number, client in ((1, gone), (2, there)):
            await client.connect()
            await client.hello(f"user{number}", secret=f"good {number}")
        hashing.hold()
        await attack.fill(hashing)
        before = crowded(node)
        for number, client in ((1, gone), (2, there)):
            await client.send(
                {"id": 1, "type": "authenticate", "request": 1, "principal": f"user{number}", "secret": "wrong again"}
            )
        await eventually(lambda: crowded(node) == before + 2)
        await gone.cut()
        await eventually(lambda: node.gateway.node.sessions.connected() == 1)
        begun = len(hashing.secrets)
        hashing.release()

        assert (await there.expect("reply"))["error"]["code"] == "unauthenticated"
        await eventually(lambda: waiting(node) == 0)
        assert hashing.secrets[begun:].count("wrong again") == 1
        await there.cut()
