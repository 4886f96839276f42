"""Resumes that must be refused: with tokens that nobody made, and with genuine ones that are worth nothing any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.hostile.attack import Attack, Attacker
from benchmarks.hostile.attacks.hashing import LAST
from benchmarks.storm import wire

TITLE: Final = "Resumes that are refused"

_WORKERS: Final = 32
"""Side by side."""

_LONG: Final = 60_000
"""Bytes of the longest token that fits into a message."""


@dataclass(frozen=True, kw_only=True)
class RefusedResumes(Attack):
    """Resumes, each on a connection of its own, as fast as one process can with many side by side.

    Attributes:
        spoil: makes the token that is shown, of a genuine one that has been superseded.
    """

    spoil: Callable[[str], str]

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""
        token = self.spoil(await _superseded(attacker))

        async def once() -> None:
            connection = await attacker.upgraded()
            try:
                # The attempt is as high as it gets: what is refused is refused for the token alone.
                await connection.resume(token, LAST, received=0, oldest=LAST)
            finally:
                attacker.effort.done += 1
                attacker.drop(connection)

        attacker.begin(seconds)
        await attacker.at_once(attacker.again_and_again(once) for _ in range(_WORKERS))


async def _superseded(attacker: Attacker) -> str:
    """Get a token that the node has made and takes no more: the session goes on with a newer one."""
    first = await attacker.session()
    token = first.token
    attacker.drop(first)
    second = await attacker.upgraded()
    await second.resume(token, 1, received=first.received, oldest=1)
    # A reply shows that the node has read what proves the newer token.
    second.number = second.request = 1
    await second.send(wire.frame(b'{"id":1,"type":"subscribe","request":1,"selector":"mallory/tokens"}'))
    await second.packets()
    return token


def forged(token: str) -> str:
    """Change a token in its last part, as who knows how one is made and has not the key."""
    at = len(token) // 2
    return token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]


def _genuine(token: str) -> str:
    return token


def _long(token: str) -> str:
    return token[:8] + "x" * _LONG


ATTACKS: Final = (
    RefusedResumes(
        name="forged-tokens",
        about="resumes with a token that nobody has signed, 32 at a time",
        counts="resumes",
        spoil=forged,
    ),
    RefusedResumes(
        name="long-tokens", about="resumes with a token of 60 KB, 32 at a time", counts="resumes", spoil=_long
    ),
    RefusedResumes(
        name="superseded-tokens",
        about="resumes with a genuine token that a newer one has superseded, 32 at a time",
        counts="resumes",
        spoil=_genuine,
    ),
)
