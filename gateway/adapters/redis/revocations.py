"""Revocations in the grid: implements ``gateway.ports.RevocationStore``.

A follower reads all pages, then the stream of changes from the revision of the first page on, by the blocking read
that the node has anyway. Revisions follow without a hole; where one shows, because the stream was trimmed past the
reader, and after the grid may have lost writes, all is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from gateway.adapters.redis import scripts
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.link import Link
from gateway.adapters.redis.scripts import Argument, Script
from gateway.adapters.redis.tail import RedisTail
from gateway.core.revocations import Revocation, RevocationKind
from gateway.core.types import GridGeneration
from gateway.ports import AllRevocations, GridUnavailable, Lifted, RevocationChanges, RevocationNews

CHANGES_KEPT: Final = 1_000
"""Changes that the stream keeps, about. A reader that was away for more reads everything, which is no great matter."""

PAGE: Final = 500
"""Revocations that are read or written in one step: well below a millisecond of the grid's time."""

NO_END: Final = "-"
"""In place of the end of a revocation that has none."""

READ_AGAIN: Final = 0.2
"""Seconds before reading begins again after it failed although the grid counts as up."""


class _Changes:
    """The reading of the stream of changes; of no more use once it is ``lost``.

    Attributes:
        key: of the stream.
        revision: of the last change that was read.
        lost: a change was missed, or may have been.
        news: changes that nobody has fetched yet, in order.
        arrived: set when there are any, or when it is lost.
    """

    __slots__ = ("arrived", "key", "lost", "news", "revision")

    def __init__(self, key: str, revision: int) -> None:
        self.key = key
        self.revision = revision
        self.lost = False
        self.news: list[Revocation | Lifted] = []
        self.arrived = asyncio.Event()

    @property
    def after(self) -> str:
        """The id that XREAD reads after."""
        return f"{self.revision}-0"

    def take_in(self, entries: Sequence[Any]) -> None:
        """Take what was read; nothing that follows a hole."""
        for number, (name, held) in entries:
            revision = int(number.partition(b"-")[0])
            if self.lost or revision != self.revision + 1:
                self.lose()
                return
            self.revision = revision
            self.news.append(_read(name, held) if held else Lifted(name.decode()))
        self.arrived.set()

    def lose(self) -> None:
        """Nothing more can be read from where it was."""
        self.lost = True
        self.arrived.set()


class RedisRevocations:
    """What is revoked in the whole cluster.

    Args:
        link: for commands, and to be told of a grid that does not fit.
        keys: names of all keys.
        tail: reads the changes.
    """

    def __init__(self, *, link: Link, keys: Keys, tail: RedisTail) -> None:
        self._link = link
        self._keys = keys
        self._tail = tail
        self._changes = _Changes(keys.revisions, 0)
        self._read_from = GridGeneration(0)
        link.when_writes_are_lost(self._lose)

    async def add(self, revocation: Revocation) -> None:
        """See ``RevocationStore.add``."""
        await self._write(scripts.REVOCATION_PUT, "1", revocation.name, _written(revocation))

    async def lift(self, name: str) -> None:
        """See ``RevocationStore.lift``."""
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
            await self._link.wait_until_up()
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

    # --- inside -------------------------------------------------------------------------------------------------------

    def _lose(self) -> None:
        self._changes.lose()

    async def _read_all(self) -> tuple[AllRevocations, _Changes]:
        keys, generation = self._keys, self._link.generation
        # Lost, should the grid be another one before the last page was read.
        changes = self._changes = _Changes(keys.revisions, 0)
        held: list[Revocation] = []
        last, first_page = b"", True
        while True:
            page = scripts.REVOCATION_PAGE(keys.grid, keys.revocations, keys.revoked, generation, last, PAGE)
            revision, *rows = await self._link.batcher.call(page)
            self._check(revision)
            if first_page:
                changes.revision, first_page = revision, False
            names = rows[::2]
            held += [_read(name, value) for name, value in zip(names, rows[1::2], strict=True) if value]
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
        keys, generation = self._keys, self._link.generation
        reply: int = await self._link.batcher.call(
            script(
                *(keys.grid, keys.revocations, keys.revoked, keys.revisions),
                *(generation, CHANGES_KEPT),
                *arguments,
            )
        )
        self._check(reply)
        return reply

    def _check(self, reply: int) -> None:
        if reply < 0:
            raise self._link.stale()


def _written(revocation: Revocation) -> str:
    until = NO_END if revocation.until is None else repr(revocation.until)
    return f"{revocation.made!r} {until} {revocation.reason}"


def _read(name: bytes, held: bytes) -> Revocation:
    kind, _, value = name.decode().partition(":")
    made, until, reason = held.decode().split(" ", 2)
    return Revocation(
        kind=RevocationKind(kind),
        value=value,
        reason=reason,
        made=float(made),
        until=None if until == NO_END else float(until),
    )
