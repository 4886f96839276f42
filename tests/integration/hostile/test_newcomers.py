"""Honest newcomers behind the address of an attacker, at whole nodes as they are by default (P20).

What is counted is work: nobody who shows a good secret is asked to come again, and next to nothing is hashed before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import ClientError

from gateway.adapters.authentication import PLACES, HashParameters, SecretHash, hash_secret, users_line
from gateway.app.security import verifications
from gateway.settings import StaticUsers
from tests.support.nodes import TestNode, eventually, running_node
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.promise("P20")

NEWCOMERS: Final = 6
KNOWN: Final = 30
"""Principals of the file whose names the attacker has."""

ATTACKERS: Final = 100
"""Connections that show wrong secrets side by side, each again as soon as it is refused: some 100 hellos a second."""

TRIES: Final = 12
"""How often a newcomer shows its secret at most where nothing tells it from those of the attacker. Two or three do
against guesses that are shown once; on a busy machine a try may be late for other reasons."""


class Hashing:
    """Writes down whose hashes were begun, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.secrets: list[str] = []
        genuine = SecretHash.matches

        def matches(hashed: SecretHash, secret: str) -> bool:
            self.secrets.append(secret)
            return genuine(hashed, secret)

        monkeypatch.setattr(SecretHash, "matches", matches)


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> Hashing:
    return Hashing(monkeypatch)


@pytest.fixture
def users(tmp_path: Path) -> StaticUsers:
    parameters = HashParameters(2**12, 8, 1)
    lines = [users_line(f"user{number}", hash_secret(f"good {number}", parameters)) for number in range(NEWCOMERS)]
    guessed = hash_secret("what nobody guesses", parameters)
    lines += [users_line(f"known{number}", guessed) for number in range(KNOWN)]
    file = tmp_path / "users"
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return StaticUsers(file)


def metric(node: TestNode, beginning: str) -> float:
    lines = node.gateway.metrics.render().decode().splitlines()
    (line,) = [each for each in lines if each.startswith(beginning)]
    return float(line.rpartition(" ")[2])


@asynccontextmanager
async def attacked(node: TestNode, principal: Callable[[int], str]) -> AsyncIterator[None]:
    """Show wrong secrets without end; the block begins when the attacker is known for it."""
    numbers = count()

    async def attack() -> None:
        while True:
            number = next(numbers)
            with suppress(ClientError, OSError):
                async with RawClient(node.url) as client:
                    await client.send({"type": "hello", "principal": principal(number), "secret": f"wrong {number}"})
                    await client.closed()

    attackers = [asyncio.create_task(attack()) for _ in range(ATTACKERS)]
    try:
        await eventually(lambda: metric(node, 'gateway_authentications_total{outcome="refused"}') > 20)
        yield
    finally:
        for each in attackers:
            each.cancel()
        await asyncio.gather(*attackers, return_exceptions=True)


async def log_in(node: TestNode, number: int) -> dict[str, Any]:
    async with RawClient(node.url) as client:
        await client.send({"type": "hello", "principal": f"user{number}", "secret": f"good {number}"})
        return await client.receive()


NOBODY: Final[dict[str, Callable[[int], str]]] = {
    "ever new": lambda number: f"stranger {number}",
    "a few, again and again": lambda number: f"stranger {number % 7}",
}

SOMEBODY: Final[dict[str, Callable[[int], str]]] = {
    "the newcomer itself": lambda _: "user0",
    "others of the file": lambda number: f"known{number % KNOWN}",
}


@pytest.mark.parametrize("names", NOBODY)
async def test_a_newcomer_gets_in_at_once_though_wrong_secrets_come_from_its_address_without_end(
    users: StaticUsers, hashing: Hashing, monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    # Nobody is refused for the time that a busy machine takes; what is done before a newcomer's turn is counted.
    monkeypatch.setattr(verifications, "PATIENCE", 3600.0)
    async with running_node(auth=users) as node, attacked(node, NOBODY[names]):
        for number in range(NEWCOMERS):
            login = asyncio.create_task(log_in(node, number))
            begun = len(hashing.secrets)

            assert (await login)["type"] == "welcome", "and is not asked to come again"

            hashed = hashing.secrets.index(f"good {number}") - begun
            assert hashed <= 2 * PLACES + NEWCOMERS, "what was being hashed, and what its address is allowed meanwhile"
        assert not node.gateway.node.readiness.reasons()


async def test_names_that_do_not_exist_take_no_place_from_anybody(users: StaticUsers, hashing: Hashing) -> None:
    async with running_node(auth=users) as node, attacked(node, NOBODY["ever new"]):
        asked = metric(node, 'gateway_authentications_total{outcome="refused"}')
        begun = len(hashing.secrets)
        await eventually(lambda: metric(node, 'gateway_authentications_total{outcome="refused"}') > asked + 200)

        assert len(hashing.secrets) - begun <= PLACES, "but for those that were being hashed"


@pytest.mark.parametrize("names", SOMEBODY)
async def test_who_knows_names_cannot_lock_them_out_even_from_their_own_address(
    users: StaticUsers, hashing: Hashing, names: str
) -> None:
    """Nothing tells the right secret from the guesses; but it is shown again, and they are not."""
    async with running_node(auth=users) as node, attacked(node, SOMEBODY[names]):
        answers = [await log_in(node, 0)]
        while answers[-1]["type"] != "welcome" and len(answers) < TRIES:
            assert (answers[-1]["code"], answers[-1]["retry_after"] > 0) == ("try_later", True)
            answers.append(await log_in(node, 0))
        assert answers[-1]["type"] == "welcome"
