"""Following a table of the in-memory grid that every node holds whole: everything first, then each change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from gateway.adapters.memory.grid_connection import GridConnection
from gateway.adapters.memory.state import NEVER_ADOPTED, GridData

E_co = TypeVar("E_co", covariant=True)
"""What a table holds."""

C_co = TypeVar("C_co", covariant=True)
"""A change of it."""


class Table(Protocol[E_co, C_co]):
    """What can be followed.

    Attributes:
        revision: counts the changes ever made.
    """

    revision: int

    def all(self) -> tuple[E_co, ...]:
        """List everything."""

    def after(self, revision: int) -> tuple[C_co, ...] | None:
        """List the changes since *revision*; None if they are not all kept any more."""


class Everything(NamedTuple, Generic[E_co]):
    """Everything that a table holds.

    Attributes:
        held: in no order.
        lost_writes: the grid may have lost writes since the item before.
    """

    held: tuple[E_co, ...]
    lost_writes: bool


class Changes(NamedTuple, Generic[C_co]):
    """What has changed since the item before.

    Attributes:
        made: at least one, in order.
    """

    made: tuple[C_co, ...]


class TableFollower(Generic[E_co, C_co]):
    """Follows one table over one connection.

    Args:
        connection: of the node.
        table: finds the table in the grid's data, which may be replaced as a whole.
    """

    def __init__(self, connection: GridConnection, table: Callable[[GridData], Table[E_co, C_co]]) -> None:
        self._connection = connection
        self._table = table
        self._wake = asyncio.Event()
        self._generation = NEVER_ADOPTED
        self._revision: int | None = None
        connection.watch_tables(self._wake.set)

    async def follow(self) -> AsyncGenerator[Everything[E_co] | Changes[C_co], None]:
        """Yield everything, then every change, until the grid is closed; for one listener."""
        self._revision = None
        while not self._connection.closed:
            news = self._next()
            if news is not None:
                yield news
                await asyncio.sleep(0)
                continue
            self._wake.clear()
            await self._wake.wait()

    def _next(self) -> Everything[E_co] | Changes[C_co] | None:
        connection = self._connection
        if not connection.readable:
            return None
        table = self._table(connection.server.data)
        changes = None
        if self._revision is not None and self._generation == connection.generation:
            changes = table.after(self._revision)
        self._revision = table.revision
        if changes is not None:
            return Changes(changes) if changes else None
        lost_writes = self._generation not in {NEVER_ADOPTED, connection.generation}
        self._generation = connection.generation
        return Everything(table.all(), lost_writes)
