"""Work that can wait a moment, done for many sessions together by one task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from gateway.app.runtime.background import Background

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Batched(Generic[K, V]):
    """Collects what is to be done, and has it done all at once.

    In a storm each session brings the same small duty, such as a word to the grid about its token. A task and an answer
    for each of them cost more than the duty.

    Args:
        background: runs the task; what is not begun when it ends is never begun.
        name: of the task.
        delay: seconds from the first piece of work to the task that does all there is by then.
        work: what to do with it.
    """

    def __init__(
        self,
        background: Background,
        name: str,
        *,
        delay: float,
        work: Callable[[dict[K, V]], Coroutine[Any, Any, None]],
    ) -> None:
        self._background = background
        self._name = name
        self._delay = delay
        self._work = work
        self._pieces: dict[K, V] = {}
        self._waits = False

    def put(self, key: K, piece: V) -> None:
        """Add a piece of work, in the place of an earlier one with the same key."""
        self._pieces[key] = piece
        if not self._waits:
            self._waits = True
            asyncio.get_running_loop().call_later(self._delay, self._begin)

    def drop(self, key: K) -> None:
        """Take a piece of work out, if it has not been begun."""
        self._pieces.pop(key, None)

    def _begin(self) -> None:
        self._waits = False
        pieces, self._pieces = self._pieces, {}
        if pieces:
            self._background.once(self._work(pieces), self._name)
