"""Selectors that are made to be costly: forbidden ones, and lists of a thousand that change."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.hostile.attack import Attack, Attacker, Needs
from benchmarks.hostile.attacks.requests import LONG_SEGMENT, WINDOW, Pump, long_selector, pump_until_over
from benchmarks.hostile.connection import Connection
from benchmarks.micro.worst_selectors import worst_list

TITLE: Final = "Selectors"

ALLOWED: Final = (
    "witness/**",
    "mallory/**",
    "**/a/**/b/**/c",
    "a/**/b/**/c/**",
    "*/a/**/*/b/**",
    "*/*/a/**/b/*/**",
    "**/b/*/*/a/**",
    "*/*/*/**/c/**/a",
)
"""What the policy of the benchmark lets everybody select: wildcards of the kinds that people write, some times over."""

_SEARCH_SECONDS: Final = 6.0
"""For which an attacker tries selectors, before it begins."""

_SEARCH_CANDIDATES: Final = 150

_BEST: Final = 3
"""Of those tried, so many are used."""

_SEGMENTS: Final = 32
"""Longest selectors (protocol 9.3)."""

_MOST_ANYS: Final = 4
"""``**`` in a selector (protocol 9.3)."""

_MARK: Final = "{number}"
"""In a candidate: a segment that is another each time, so that no answer is remembered."""

_SEED: Final = 7

_FULL: Final = 1_000
"""Entries of the longest list of selections, by default."""

_FILL_WINDOW: Final = 64


def candidates() -> Iterator[str]:
    """Make selectors that a policy with wildcards has trouble with: those known to be bad, then random mixtures."""
    ones = "/".join("*" * 12)
    for literals in ("a/b/c", "a/b", "a/a/a/b/b/b", "c/b/a", "a/*/b/*/c", "*/*/*"):
        yield f"**/{literals}/**/{literals}/**/{_MARK}/**"
        yield f"**/{_MARK}/**/{literals}/**/{literals}/**"
        yield f"{ones}/**/{literals}/**/{literals}/{_MARK}/**"
        yield f"{literals}/**/{ones}/{literals}/**/{_MARK}/**"
    chance = random.Random(_SEED)
    while True:
        length = chance.randint(6, _SEGMENTS)
        segments = chance.choices(("a", "b", "c", "*"), k=length)
        for at in chance.sample(range(length), k=min(_MOST_ANYS, length)):
            segments[at] = "**"
        segments[chance.choice([at for at in range(length) if segments[at] != "**"] or [0])] = _MARK
        yield "/".join(segments)


@dataclass(frozen=True, kw_only=True)
class Forbidden(Attack):
    """Subscribes that a policy refuses, by the selectors for which this node took longest when it was asked alone."""

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""
        worst = await self._search(attacker)

        def fields(number: int) -> str:
            selector = worst[number % len(worst)].replace(_MARK, f"n{number}")
            return f'"type":"subscribe","selector":"{selector}"'

        async def once() -> None:
            await pump_until_over(attacker, await attacker.session(), fields)

        attacker.begin(seconds)
        await attacker.at_once([attacker.again_and_again(once)])

    @staticmethod
    async def _search(attacker: Attacker) -> list[str]:
        connection = await attacker.session()
        times: list[tuple[float, str]] = []
        selector = ""
        pump = Pump(connection, lambda _: f'"type":"subscribe","selector":"{selector}"', 1, lambda _: None)
        deadline = time.monotonic() + _SEARCH_SECONDS
        for number, candidate in zip(range(_SEARCH_CANDIDATES), candidates(), strict=False):
            if time.monotonic() > deadline and len(times) >= _BEST:
                break
            took = []
            for each in "xy":
                selector = candidate.replace(_MARK, f"{each}{number}")
                began = time.perf_counter()
                await pump.ask(1)
                await pump.answered()
                took.append(time.perf_counter() - began)
            times.append((min(took), candidate))
        attacker.drop(connection)
        return [candidate for _, candidate in sorted(times, reverse=True)[:_BEST]]


async def fill_selections(connection: Connection, number: int, selector: Callable[[int], str] = long_selector) -> None:
    """Select so many selectors, and wait for all replies.

    Args:
        connection: of a session, greeted.
        number: how many.
        selector: by the number of the request; long ones by default.

    Raises:
        Lost: the connection is over.
    """
    pump = Pump(
        connection,
        lambda request: f'"type":"subscribe","selector":"{selector(request)}"',
        _FILL_WINDOW,
        lambda _: None,
    )
    for _ in range(number):
        await pump.ask(1)
        while pump.unanswered >= _FILL_WINDOW:
            await connection.skim()
    await pump.answered()


@dataclass(frozen=True, kw_only=True)
class Toggled(Attack):
    """A list of a thousand long selections, of which one after the other is taken out and put back."""

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""

        def fields(number: int) -> str:
            kind = "unsubscribe" if number % 2 else "subscribe"
            return f'"type":"{kind}","selector":"{long_selector(1 + number // 2 % (_FULL // 2))}"'

        async def prepared() -> Connection:
            connection = await attacker.session()
            await fill_selections(connection, attacker.target.scaled(_FULL) - 1)
            return connection

        # The list is there before the time begins.
        first: list[Connection] = [await prepared()]

        async def once() -> None:
            await pump_until_over(attacker, first.pop() if first else await prepared(), fields)

        attacker.begin(seconds)
        await attacker.at_once([attacker.again_and_again(once)])


@dataclass(frozen=True, kw_only=True)
class ManySelections(Attack):
    """Sessions that select as much as each may and are left behind for their window, one after the other.

    Attributes:
        sessions: of one account.
    """

    sessions: int

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""

        def fields(number: int) -> str:
            return f'"type":"subscribe","selector":"mallory/**/{number:08}/**/{LONG_SEGMENT}/**"'

        def count(number: int) -> None:
            attacker.effort.done += number

        async def once() -> None:
            connection = await attacker.session()
            try:
                pump = Pump(connection, fields, WINDOW, count)
                while not attacker.over and connection.request < _FULL:
                    await pump.stroke()
            finally:
                attacker.drop(connection)

        attacker.begin(seconds)
        number = attacker.target.scaled(self.sessions)
        await attacker.at_once(attacker.again_and_again(once) for _ in range(number))


@dataclass(frozen=True, kw_only=True)
class Matched(Attack):
    """A thousand selectors that are made for it, and ever new topics, to be matched with all of them."""

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""
        made = list(worst_list(attacker.target.scaled(_FULL), root="mallory/", length=_MATCHED_SEGMENTS))
        # One session alone would be charged for comparing each with all others, and would need minutes.
        holding = [await self._holding(attacker, made[start::_HOLDERS]) for start in range(min(_HOLDERS, len(made)))]

        def topic(request: int) -> str:
            # It matches every selector in most ways up to its last segment, which none has.
            return f'"type":"publish","topic":"mallory/{_LETTERS}/{request}","value":1'

        async def once() -> None:
            await pump_until_over(attacker, await attacker.session(), topic)

        attacker.begin(seconds)
        await attacker.at_once([attacker.again_and_again(once)])
        for connection in holding:
            attacker.drop(connection)

    @staticmethod
    async def _holding(attacker: Attacker, selectors: Sequence[str]) -> Connection:
        connection = await attacker.session()
        await fill_selections(connection, len(selectors), lambda request: selectors[request % len(selectors)])
        return connection


_HOLDERS: Final = 25
"""Sessions that hold the selectors to be matched."""

_MATCHED_SEGMENTS: Final = 28
"""Of each selector: a thousand of them fit into a list of selections."""

_LETTERS: Final = "/".join("a" * (_SEGMENTS - 2))

ATTACKS: Final = (
    Forbidden(
        name="forbidden-selectors",
        about="subscribes that a policy refuses, by the slowest of 150 selectors that were tried, 1 session",
        counts="requests",
        needs=Needs(policy=True),
    ),
    Toggled(
        name="toggled-selections",
        about="a list of 1,000 selectors of 1 KB, of which one is taken out or put back each time, 1 session",
        counts="requests",
    ),
    Matched(
        name="matched-topics",
        about="values to ever new topics of 32 segments, which 1,000 selectors nearly match; 1 session publishes",
        counts="requests",
    ),
    ManySelections(
        name="left-selections",
        about="sessions that select 1,000 times with wildcards and are left behind, 8 at a time, one account",
        counts="requests",
        sessions=8,
    ),
)
