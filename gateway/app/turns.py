"""How much is done for clients in one turn of the loop, and who is next when it is used up (P20).

```text
more than a turn's work ──▶ wait, in the order of asking ──▶ next turn: until its work is used up ──▶ …
```

Whoever asks again while others wait is put behind them, so that those who want much take turns, and one who wants
little waits for one piece of work of each of the others at most.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

TURN_BYTES: Final = 256 * 1024
"""Bytes of clients' messages that are decoded, and of their requests that are executed, before the loop gets its turn:
one to two milliseconds of each. Four messages of the largest size by default."""

PACKET_BYTES: Final = 1024
"""Bytes as which a packet counts besides its text: to read and take in a small one takes some 5 µs, as long as a
kibibyte or two of a large value."""


class Turns:
    """The work of each turn.

    Whoever does something looks whether ``left`` is positive and then takes off what it cost, so that the last piece of
    work may reach beyond. In a turn in which little is asked for nothing is started anew: what is left of the last one
    serves on, and costs the hot path a comparison.

    Args:
        most: work of one turn, in bytes.

    Attributes:
        left: of this turn.
    """

    __slots__ = ("_most", "_scheduled", "_waiting", "left")

    def __init__(self, most: int = TURN_BYTES) -> None:
        self._most = most
        self._waiting: deque[Callable[[], None]] = deque()
        self._scheduled = False
        self.left = most

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, go_on: Callable[[], None]) -> None:
        """Have *go_on* called in a later turn; it takes off what it costs, and must not raise."""
        self._waiting.append(go_on)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    async def turn(self, cost: int) -> None:
        """Wait for a turn for a piece of work, and take off what it costs."""
        if self.left > 0:
            self.left -= cost
            return
        come: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def go_on() -> None:
            if not come.done():
                self.left -= cost
                come.set_result(None)

        self.wait(go_on)
        await come

    def _begin(self) -> None:
        self._scheduled = False
        self.left = self._most
        while self._waiting and self.left > 0:
            self._waiting.popleft()()
        if self._waiting:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)
