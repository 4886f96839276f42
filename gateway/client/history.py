"""Values that every listener sees from the beginning: recoveries and notices.

Somebody who begins to listen after the first failover still learns of it, because the last values are kept. A listener
that is slower than the values skips what is no longer kept: they describe what happened to the session, and the newest
are the ones that matter.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Generic, Self, TypeVar

from gateway.core.client.errors import SessionEnded

KEPT: Final = 256
"""Values kept for listeners that come later: at one failover a minute, the last four hours."""

_T = TypeVar("_T")


class History(Generic[_T]):
    """An append-only record of values with any number of listeners, each at its own place."""

    def __init__(self) -> None:
        self._kept: deque[_T] = deque(maxlen=KEPT)
        self._count = 0
        self._ended = False
        self._error: SessionEnded | None = None
        self._news: set[asyncio.Future[None]] = set()

    def append(self, value: _T) -> None:
        """Add a value; no effect after ``end``."""
        if self._ended:
            return
        self._kept.append(value)
        self._count += 1
        self._wake()

    def end(self, error: SessionEnded | None) -> None:
        """Let every listener finish with what is kept, and then stop, or raise *error* if there is one."""
        if not self._ended:
            self._ended = True
            self._error = error
            self._wake()

    def __len__(self) -> int:
        """Count all values there ever were."""
        return self._count

    def listen(self) -> Listener[_T]:
        """Begin to iterate over all values that are kept and then each new one."""
        return Listener(self)

    async def value(self, place: int) -> tuple[int, _T]:
        """Wait for the value at a place, or the first one after it that is still kept.

        Returns:
            Its place, from 0, and the value.

        Raises:
            StopAsyncIteration: there will be none, because the session was closed.
            SessionEnded: there will be none, because the session died of something.
        """
        while True:
            place = max(place, self._count - len(self._kept))
            if place < self._count:
                return place, self._kept[place - self._count]
            if self._ended:
                if self._error is not None:
                    raise self._error.again()
                raise StopAsyncIteration
            news = asyncio.get_running_loop().create_future()
            self._news.add(news)
            try:
                await news
            finally:
                self._news.discard(news)

    def _wake(self) -> None:
        for news in self._news:
            if not news.done():
                news.set_result(None)


class Listener(Generic[_T]):
    """One iteration over a ``History``, begun by ``History.listen``."""

    __slots__ = ("_history", "_place")

    def __init__(self, history: History[_T]) -> None:
        self._history = history
        self._place = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _T:
        """Wait for the next value; see ``History.value``."""
        place, value = await self._history.value(self._place)
        self._place = place + 1
        return value
