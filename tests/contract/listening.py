"""Readers of what a grid tells, in the background while a block runs; they keep what they have heard."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from gateway.ports import Grid
from tests.support.clock import eventually
from tests.support.times import scaled


class Reader(ABC):
    """Reads something of one node's grid while its ``async with`` block runs."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    @abstractmethod
    async def _read(self) -> None:
        """Read, for ever."""


class Named(Protocol):
    """What a grid holds one of each name of."""

    @property
    def name(self) -> str:
        """Its name."""


Item = TypeVar("Item", bound=Named)
Gone = TypeVar("Gone", bound=Named)


class Listener(Reader, Generic[Item, Gone]):
    """Follows what the nodes of a cluster are told, everything first and then each change, and holds what is so now.

    Attributes:
        held: by name.
        everything: each time that all came, whether the grid was said to have lost writes.
        changes: in order.
    """

    def __init__(self, grid: Grid) -> None:
        super().__init__(grid)
        self.held: dict[str, Item] = {}
        self.everything: list[bool] = []
        self.changes: list[Item | Gone] = []

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await eventually(lambda: bool(self.everything), message="everything was read")
        return self

    async def holds(self, *items: Item) -> None:
        """Wait until these are held, and no others."""
        wanted = {each.name: each for each in items}
        await eventually(lambda: self.held == wanted, message=f"{len(wanted)} are held")

    def hear_all(self, items: Sequence[Item], *, lost_writes: bool) -> None:
        """Take in everything."""
        self.everything.append(lost_writes)
        self.held = {each.name: each for each in items}
        assert len(self.held) == len(items), "each name once"

    def hear_changes(self, changes: Sequence[Item | Gone]) -> None:
        """Take in what has changed."""
        assert changes, "at least one"
        self.changes.extend(changes)
        for change in changes:
            self._hear(change)

    @abstractmethod
    def _hear(self, change: Item | Gone) -> None:
        """Take in one change."""


async def eventually_none(ask: Callable[[], Awaitable[object]]) -> None:
    """Ask until the answer is that there is nothing."""
    deadline = asyncio.get_running_loop().time() + scaled(10.0)
    while await ask():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)
