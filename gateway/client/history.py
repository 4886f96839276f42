"""Waiting for the values of a ``core.client.history`` record, with any number of listeners."""

from __future__ import annotations

import asyncio
from typing import Generic, Self, TypeVar

from gateway.core.client.errors import SessionEnded
from gateway.core.client.history import Record

_T = TypeVar("_T")


class History(Record[_T]):
    """A record that asyncio tasks listen to, each at its own place."""

    def __init__(self) -> None:
        super().__init__()
        self._news: set[asyncio.Future[None]] = set()

    def append(self, value: _T) -> bool:
        """See ``Record.append``."""
        return super().append(value) and self._wake()

    def end(self, error: SessionEnded | None) -> bool:
        """See ``Record.end``."""
        return super().end(error) and self._wake()

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
        while (found := self.at(place)) is None:
            if self.ended:
                if self.error is not None:
                    raise self.error.again()
                raise StopAsyncIteration
            news = asyncio.get_running_loop().create_future()
            self._news.add(news)
            try:
                await news
            finally:
                self._news.discard(news)
        return found

    def _wake(self) -> bool:
        for news in self._news:
            if not news.done():
                news.set_result(None)
        return True


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
