"""Revocations in the grid: implements ``gateway.ports.RevocationStore``.

A follower reads all pages, then the stream of changes from the revision of the first page on, by the blocking read
that the node has anyway. Revisions follow without a hole; where one shows, because the stream was trimmed past the
reader, and after the grid may have lost writes, all is read again. So it is where an entry is not the gateway's: the
first page of what is read then deletes whatever stands behind the newest revision; see ``revisions.lua``.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from gateway.adapters.redis import scripts
from gateway.adapters.redis.foreign import ForeignData
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.scripts import Argument, Script
from gateway.adapters.redis.tail import RedisTail
from gateway.core.policy.revocations import MAX_REVOCATION_REASON, MAX_REVOKED_VALUE, Revocation, RevocationKind
from gateway.core.types import GridGeneration
from gateway.ports import AllRevocations, GridUnavailable, RevocationChanges, RevocationNews, Unblocked

CHANGES_KEPT: Final = 1_000
"""Changes that the stream keeps, about. A reader that was away for more reads everything, which is no great matter."""

PAGE: Final = 500
"""Revocations that are read or written in one step: well below a millisecond of the grid's time."""

_SHOWN_BYTES: Final = 60
"""Of the name of a revocation that cannot be read, in a log event."""

NO_END: Final = "-"
"""In place of the end of a revocation that has none."""

READ_AGAIN: Final = 0.2
"""Seconds before reading begins again after it failed although the grid counts as up, or met foreign data, which may be
written at full speed."""

LARGEST_REVISION: Final = 2**40
"""More changes than any cluster sees; ids that Redis makes up begin with a time, which is above. ``revisions.lua`` has
the same number."""


class _Changes:
    """The reading of the stream of changes; of no more use once it is ``lost``.

    Args:
        foreign: told of what nobody here can have written.

    Attributes:
        key: of the stream.
        revision: of the last change that was read.
        lost: a change was missed, or may have been.
        tampered: it was, because another program writes to the stream.
        news: changes that nobody has fetched yet, in order.
        arrived: set when there are any, or when it is lost.
    """

    __slots__ = ("_foreign", "arrived", "key", "lost", "news", "revision", "tampered")

    def __init__(self, key: str, revision: int, foreign: ForeignData) -> None:
        self._foreign = foreign
        self.key = key
        self.revision = revision
        self.lost = False
        self.tampered = False
        self.news: list[Revocation | Unblocked] = []
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
                change = _read(name, held) if held else Unblocked(name.decode())
            except ValueError as error:
                self._foreign.skipped(self.key, number.decode(), error)
                self.tampered = True
                self.lose()
                return
            self.revision = revision
            self.news.append(change)
        self.arrived.set()

    def lose(self) -> None:
        """Nothing more can be read from where it was; see ``OtherReading``."""
        self.lost = True
        self.arrived.set()


class RedisRevocations:
    """What is revoked in the whole cluster.

    Args:
        grid: for commands, and to be told of a grid that does not fit.
        keys: names of all keys.
        tail: reads the changes.
        foreign: told of what is not the gateway's.
    """

    def __init__(self, *, grid: GridConnection, keys: Keys, tail: RedisTail, foreign: ForeignData) -> None:
        self._grid = grid
        self._keys = keys
        self._tail = tail
        self._foreign = foreign
        self._changes = _Changes(keys.revisions, 0, foreign)
        self._read_from = GridGeneration(0)
        grid.when_writes_are_lost(self._lose)

    async def add(self, revocation: Revocation) -> None:
        """See ``RevocationStore.add``."""
        await self._write(scripts.REVOCATION_PUT, "1", revocation.name, _written(revocation))

    async def unblock(self, name: str) -> None:
        """See ``RevocationStore.unblock``."""
        await self._write(scripts.REVOCATION_DROP, name, "")

    async def restore(self, revocations: Sequence[Revocation]) -> int:
        """See ``RevocationStore.restore``."""
        return await self._write_many(scripts.REVOCATION_PUT, ("0",), revocations)

    async def forget(self, revocations: Sequence[Revocation]) -> None:
        """See ``RevocationStore.forget``."""
        await self._write_many(scripts.REVOCATION_DROP, (), revocations)

    async def follow(self) -> AsyncIterator[RevocationNews]:
        """See ``RevocationStore.follow``."""
        while True:
            await self._grid.wait_until_up()
            try:
                everything, changes = await self._read_all()
            except GridUnavailable:
                await asyncio.sleep(READ_AGAIN)
                continue
            self._tail.attach(changes)
            try:
                yield everything
                while not changes.lost:
                    changes.arrived.clear()
                    if changes.news:
                        news, changes.news = tuple(changes.news), []
                        yield RevocationChanges(news)
                    elif not changes.lost:
                        await changes.arrived.wait()
            finally:
                self._tail.detach(changes)
            if changes.tampered:
                await asyncio.sleep(READ_AGAIN)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _lose(self) -> None:
        self._changes.lose()

    async def _read_all(self) -> tuple[AllRevocations, _Changes]:
        keys, generation = self._keys, self._grid.generation
        # Lost, should the grid be another one before the last page was read.
        changes = self._changes = _Changes(keys.revisions, 0, self._foreign)
        held: list[Revocation] = []
        last, first_page = b"", True
        while True:
            page = scripts.REVOCATION_PAGE(
                *(keys.grid, keys.revocations, keys.revoked, keys.revisions, generation, last, PAGE)
            )
            revision, swept, *rows = await self._grid.batcher.call(page)
            self._check(revision)
            self._foreign.swept(keys.revisions, swept)
            if first_page:
                changes.revision, first_page = revision, False
            names = rows[::2]
            read = [self._held(name, value) for name, value in zip(names, rows[1::2], strict=True) if value]
            held += [each for each in read if each is not None]
            if len(names) < PAGE:
                break
            last = names[-1]
        lost_writes = self._read_from not in {0, generation}
        self._read_from = generation
        return AllRevocations(tuple(held), lost_writes), changes

    async def _write_many(self, script: Script, how: tuple[Argument, ...], revocations: Sequence[Revocation]) -> int:
        written = 0
        for start in range(0, len(revocations), PAGE):
            page = revocations[start : start + PAGE]
            pairs = [argument for each in page for argument in (each.name, _written(each))]
            written += await self._write(script, *how, *pairs)
        return written

    async def _write(self, script: Script, *arguments: Argument) -> int:
        keys, generation = self._keys, self._grid.generation
        written, swept = await self._grid.batcher.call(
            script(
                *(keys.grid, keys.revocations, keys.revoked, keys.revisions),
                *(generation, CHANGES_KEPT),
                *arguments,
            )
        )
        self._check(written)
        self._foreign.swept(keys.revisions, swept)
        return int(written)

    def _held(self, name: bytes, value: bytes) -> Revocation | None:
        try:
            return _read(name, value)
        except ValueError as error:
            self._foreign.skipped(self._keys.revocations, repr(name[:_SHOWN_BYTES]), error)
            return None

    def _check(self, reply: int) -> None:
        if reply < 0:
            raise self._grid.stale()


def _written(revocation: Revocation) -> str:
    until = NO_END if revocation.until is None else repr(revocation.until)
    return f"{revocation.made!r} {until} {revocation.reason}"


def _read(name: bytes, held: bytes) -> Revocation:
    """Read a revocation.

    Raises:
        ValueError: it is none.
    """
    kind, _, value = name.decode().partition(":")
    made, until, reason = held.decode().split(" ", 2)
    if len(value) > MAX_REVOKED_VALUE or len(reason) > MAX_REVOCATION_REASON:
        raise ValueError("it is longer than any that the gateway writes")
    if not (math.isfinite(float(made)) and (until == NO_END or math.isfinite(float(until)))):
        raise ValueError("a time in it is none")
    return Revocation(
        kind=RevocationKind(kind),
        value=value,
        reason=reason,
        made=float(made),
        until=None if until == NO_END else float(until),
    )
