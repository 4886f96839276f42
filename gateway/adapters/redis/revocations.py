"""Revocations in the grid: implements ``gateway.ports.RevocationStore``.

A follower reads all pages, then the stream of changes from the revision of the first page on; see ``news``.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Final

from gateway.adapters.redis import scripts
from gateway.adapters.redis.foreign import ForeignData
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.news import CHANGES_KEPT, News, follow_table
from gateway.adapters.redis.scripts import Argument, Script
from gateway.adapters.redis.tail import RedisTail
from gateway.core.policy.revocations import MAX_REVOCATION_REASON, MAX_REVOKED_VALUE, Revocation, RevocationKind
from gateway.core.types import GridGeneration
from gateway.ports import AllRevocations, RevocationChanges, RevocationNews, Unblocked

PAGE: Final = 500
"""Revocations that are read or written in one step: well below a millisecond of the grid's time."""

_SHOWN_BYTES: Final = 60
"""Of the name of a revocation that cannot be read, in a log event."""

NO_END: Final = "-"
"""In place of the end of a revocation that has none."""


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
        self._news = News(keys.revisions, _change, foreign)
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
        async with aclosing(follow_table(self._grid, self._tail, self._read_all)) as news:
            async for each in news:
                yield RevocationChanges(each) if isinstance(each, tuple) else each

    # --- inside -------------------------------------------------------------------------------------------------------

    def _lose(self) -> None:
        self._news.lose()

    async def _read_all(self) -> tuple[AllRevocations, News[Revocation | Unblocked]]:
        keys, generation = self._keys, self._grid.generation
        # Lost, should the grid be another one before the last page was read.
        news = self._news = News(keys.revisions, _change, self._foreign)
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
                news.revision, first_page = revision, False
            names = rows[::2]
            read = [self._held(name, value) for name, value in zip(names, rows[1::2], strict=True) if value]
            held += [each for each in read if each is not None]
            if len(names) < PAGE:
                break
            last = names[-1]
        lost_writes = self._read_from not in {0, generation}
        self._read_from = generation
        return AllRevocations(tuple(held), lost_writes), news

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


def _change(name: bytes, held: bytes) -> Revocation | Unblocked:
    return _read(name, held) if held else Unblocked(name.decode())


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
