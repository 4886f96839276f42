"""How much is done for clients in one turn of the loop, and who is next when it is used up (P20).

```text
more than a turn's work ──▶ wait, in a queue that is fair to principals ──▶ next turn: until its work is used up ──▶ …
```

Principals take turns, however many of their sessions wait. Whoever asks again while others wait is put behind them; so
is whoever is served and has more to say. One who wants little passes in front of those who want much, and yet one of
these gets on in each turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Final

from gateway.app.runtime.clock import Clock
from gateway.app.session.session import Session
from gateway.core.pacing.fair_queue import FairQueue

TURN_BYTES: Final = 256 * 1024
"""Bytes of clients' messages that are decoded, and of their requests that are executed, before the loop gets its turn:
one to two milliseconds of each. Four messages of the largest size by default."""

TURN_TIME: Final = 0.004
"""Seconds of a turn in which those who wait are served: as long as sessions are read in one (ADR 0047). Bytes tell what
well-meant requests take; of JSON that is made to be hard to read, 256 KiB take ten times as long."""

PACKET_BYTES: Final = 1024
"""Bytes as which a packet counts besides its text: to read and take in a small one takes some 5 µs, as long as a
kibibyte or two of a large value."""


SELECTOR_COST: Final = 32
"""Bytes of plain values that take as long as a byte of a selector does to find its place in a list and in the index of
the node: the longest patterns take a quarter of a millisecond each, and an unsubscribe may keep sixty."""

BRACE_BYTES: Final = PACKET_BYTES // 2
"""Bytes as which a brace counts in a message that is not read yet: each packet begins with one, which nothing else can
stand for, and values have some, too."""

STEPS_PER_PACKET: Final = 20
"""Steps of judging, and of other work on selectors, in the time that a packet takes to be read and executed: some
20 µs. What a request has cost is charged in packets."""

_ONE: Final = 1
"""Enough for one message to be taken in, whatever its size, and for nothing behind it: that waits for its turn."""

SHARE_BYTES: Final = 16 * 1024
"""Most that one who wants little does when it is served: a dozen small requests, which are one step of the grid then.
If few wait, an equal share would be so much that it delays those who come."""

ROUND_TURNS: Final = 2
"""Turns in which each principal that wants little is served once, unless a message of each takes more. In one, each
would do half as much, in more steps of the grid: a publish in a step of its own costs twice as much."""

LIGHT_BYTES: Final = 4 * 1024
"""Work of so little that it passes in front of more: behind sixty clients that send the largest values it would wait
for dozens of turns, and for them it is next to nothing."""


class Turns:
    """The work of each turn.

    Whoever does something looks whether ``left`` is positive and then takes off what it cost, so that the last piece of
    work may reach beyond. In a turn in which little is asked for nothing is started anew: what is left of the last one
    serves on, and costs the hot path a comparison.

    Args:
        most: work of one turn, in bytes.
        clock: seconds, as fine as the time that a message takes.

    Attributes:
        left: of this turn; while one who waited is served, of its share.
        serves: whether one is served that waited: what it has to say besides must fit into what is left.
    """

    __slots__ = ("_clock", "_light", "_most", "_scheduled", "_waiting", "left", "serves")

    def __init__(self, most: int = TURN_BYTES, *, clock: Callable[[], float] = perf_counter) -> None:
        self._most = most
        self._clock = clock
        self._waiting: FairQueue[Callable[[], None]] = FairQueue()
        self._light: FairQueue[Callable[[], None]] = FairQueue()
        self._scheduled = False
        self.left = most
        self.serves = False

    def __len__(self) -> int:
        return len(self._waiting) + len(self._light)

    def wait(self, go_on: Callable[[], None], cost: int, principal: str) -> None:
        """Have *go_on* called in a later turn.

        Args:
            go_on: takes off what it costs, and must not raise.
            cost: what that will be, at least.
            principal: for whom.
        """
        (self._light if cost <= LIGHT_BYTES else self._waiting).push(principal, go_on)
        self._schedule()

    async def turn(self, cost: int, principal: str) -> None:
        """Wait for a turn for a piece of work for a principal, and take off what it costs."""
        if self.left > 0:
            self.left -= cost
            return
        come: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def go_on() -> None:
            if not come.done():
                self.left -= cost
                come.set_result(None)

        self.wait(go_on, cost, principal)
        await come

    def _begin(self) -> None:
        self._scheduled = False
        ends = self._clock() + TURN_TIME
        rest = self._most
        share = min(SHARE_BYTES, ROUND_TURNS * rest // max(1, self._light.keys)) or _ONE
        # One that wants much gets on in any case, before those who want little have used up all there is.
        first = self._waiting.pop() if self._waiting else None
        while self._light and rest > 0:
            rest = self._serve(self._light.pop(), share, rest, ends)
        if first is not None:
            rest = self._serve(first, _ONE, rest, ends)
        while self._waiting and rest > 0:
            rest = self._serve(self._waiting.pop(), _ONE, rest, ends)
        self.left = rest
        if self._waiting or self._light:
            self._schedule()

    def _serve(self, go_on: Callable[[], None], share: int, rest: int, ends: float) -> int:
        """Let one who waits go on; returns what is left of the turn, which is nothing when its time is over."""
        self.left, self.serves = share, True
        go_on()
        self.serves = False
        rest += self.left - share
        return rest if self._clock() < ends else min(rest, 0)

    def _schedule(self) -> None:
        """Have the next turn begin, once: whoever is served may have asked for it already, to be served again."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)


def estimated_cost(message: bytes) -> int:
    """Estimate what it will cost to take in a message, by what is seen of it before it is read."""
    return len(message) + BRACE_BYTES * message.count(b"{")


async def rest(session: Session, clock: Clock) -> None:
    """Wait until what earlier requests of a session have cost is paid off; others are served meanwhile."""
    pause = session.rests_until - clock.monotonic()
    if pause > 0:
        await asyncio.sleep(pause)
