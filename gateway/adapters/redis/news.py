"""Tables of the grid that every node holds whole: read once, then kept in step by a stream of changes.

A follower reads everything, then the stream of changes from the revision of what it read on, by the blocking read that
the node has anyway. Revisions follow without a hole; where one shows, because the stream was trimmed past the reader,
and after the grid may have lost writes, all is read again. So it is where an entry is not the gateway's: the first step
of what is read then deletes whatever stands behind the newest revision; see ``revisions.lua``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from gateway.adapters.redis.foreign import ForeignData
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.tail import RedisTail
from gateway.ports import GridUnavailable

A = TypeVar("A")
"""Everything that a table holds."""

C = TypeVar("C")
"""One change of it."""

CHANGES_KEPT: Final = 1_000
"""Changes that a stream keeps, about. A reader that was away for more reads everything, which is no great matter."""

READ_AGAIN: Final = 0.2
"""Seconds before reading begins again after it failed although the grid counts as up, or met foreign data, which may be
written at full speed."""

LARGEST_REVISION: Final = 2**40
"""More changes than any cluster sees; ids that Redis makes up begin with a time, which is above. ``revisions.lua`` has
the same number."""

ReadChange: TypeAlias = Callable[[bytes, bytes], C]
"""Makes a change of a name and what is held of it, which is empty for no more; raises ValueError if it is none."""


class News(Generic[C]):
    """The reading of a stream of changes; of no more use once it is ``lost``.

    Args:
        key: of the stream.
        read: makes a change of an entry.
        foreign: told of what nobody here can have written.

    Attributes:
        key: of the stream.
        revision: of the last change that was read.
        lost: a change was missed, or may have been.
        tampered: it was, because another program writes to the stream.
        changes: those that nobody has fetched yet, in order.
        arrived: set when there are any, or when it is lost.
    """

    __slots__ = ("_foreign", "_read", "arrived", "changes", "key", "lost", "revision", "tampered")

    def __init__(self, key: str, read: ReadChange[C], foreign: ForeignData) -> None:
        self._foreign = foreign
        self._read = read
        self.key = key
        self.revision = 0
        self.lost = False
        self.tampered = False
        self.changes: list[C] = []
        self.arrived = asyncio.Event()

    @property
    def after(self) -> str:
        """The id that XREAD reads after."""
        return f"{self.revision}-0"

    def take_in(self, entries: Sequence[Any]) -> None:
        """Take what was read; nothing that follows a hole, or what is not the gateway's."""
        for number, fields in entries:
            if self.lost:
                return
            first, _, second = number.partition(b"-")
            revision = int(first)
            try:
                if revision > LARGEST_REVISION or second != b"0":
                    raise ValueError("its id is not one that the gateway gives")
                if revision != self.revision + 1:
                    self.lose()
                    return
                name, held = fields
                change = self._read(name, held)
            except ValueError as error:
                self._foreign.skipped(self.key, number.decode(), error)
                self.tampered = True
                self.lose()
                return
            self.revision = revision
            self.changes.append(change)
        self.arrived.set()

    def lose(self) -> None:
        """Nothing more can be read from where it was; see ``OtherReading``."""
        self.lost = True
        self.arrived.set()


async def follow_table(
    grid: GridConnection, tail: RedisTail, read_all: Callable[[], Awaitable[tuple[A, News[C]]]]
) -> AsyncGenerator[A | tuple[C, ...], None]:
    """Yield everything that a table holds, then its changes, at least one at a time; for ever.

    Args:
        grid: of the node.
        tail: reads the changes.
        read_all: reads everything, and tells from where on the changes are to be read.
    """
    while True:
        await grid.wait_until_up()
        try:
            everything, news = await read_all()
        except GridUnavailable:
            await asyncio.sleep(READ_AGAIN)
            continue
        tail.attach(news)
        try:
            yield everything
            while not news.lost:
                news.arrived.clear()
                if news.changes:
                    changes, news.changes = tuple(news.changes), []
                    yield changes
                elif not news.lost:
                    await news.arrived.wait()
        finally:
            tail.detach(news)
        if news.tampered:
            await asyncio.sleep(READ_AGAIN)
