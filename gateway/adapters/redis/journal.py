"""The journal in the grid: implements ``gateway.ports.JournalStore``."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Final

from gateway.adapters.redis import scripts
from gateway.adapters.redis.foreign import ForeignData
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.keys import Keys
from gateway.core.types import NodeRef
from gateway.ports import Appended, GridUnavailable, JournalBatch

CUT_MOST: Final = 16
"""Entries that one append cuts at most, because it has to look into each for what it counts: some 50 µs of Redis. More
than it adds, so that a stream shrinks to a cap that was lowered."""

PORTION_BYTES: Final = 64 * 1024
"""Bytes of events on the wire at a time, unless a single batch has more. What sessions ask for travels behind them on
the same connection: were it a storm's megabyte, a slow link could not pass it on within the time limit, and the grid
would count as away for everybody, again and again."""

PRODUCER_LIFE_MS: Final = 24 * 3_600_000
"""Milliseconds after its last append for which a node incarnation is remembered: far longer than anybody asks again."""

_INCARNATION_BYTES: Final = 8
"""Of the random text that names an incarnation of a partition; there are few, and two that share one must not be."""


class RedisJournal:
    """The streams of the journal.

    Args:
        node: the node this process is, whose batches are numbered.
        grid: for commands, and to be told of a grid that does not fit.
        keys: names of all keys.
        foreign: told of entries of other programs that stood in the way.
        length: entries that each partition keeps.
    """

    def __init__(self, *, node: NodeRef, grid: GridConnection, keys: Keys, foreign: ForeignData, length: int) -> None:
        self._producer = node.incarnation
        self._grid = grid
        self._keys = keys
        self._foreign = foreign
        self._length = length

    async def append(self, batches: Sequence[JournalBatch]) -> list[Appended | Exception]:
        """See ``JournalStore.append``."""
        if not batches:
            return []
        results: list[Appended | Exception] = []
        for portion in _portions(batches):
            try:
                results += await self._append(portion)
            except GridUnavailable as unknown:
                if not results:
                    raise
                # What came before is in the journal: on a slow link that is how it gets on at all.
                why = str(unknown)
                return results + [GridUnavailable(why) for _ in batches[len(results) :]]
        return results

    async def _append(self, batches: Sequence[JournalBatch]) -> list[Appended | Exception]:
        keys, generation = self._keys, self._grid.generation
        replies = await self._grid.batcher.submit(
            [
                scripts.JOURNAL_APPEND(
                    *(keys.journal[each.partition], keys.journal_state[each.partition]),
                    *(generation, self._producer, each.number, each.count, each.events),
                    *(self._length, CUT_MOST, secrets.token_hex(_INCARNATION_BYTES), PRODUCER_LIFE_MS),
                )
                for each in batches
            ],
            patient=True,
        )
        if b"stale" in replies:
            raise self._grid.stale()
        for batch, reply in zip(batches, replies, strict=True):
            if not isinstance(reply, Exception):
                self._foreign.swept(keys.journal[batch.partition], reply[3])
        return [
            reply if isinstance(reply, Exception) else Appended(reply[0] == 0, reply[1], reply[2]) for reply in replies
        ]


def _portions(batches: Sequence[JournalBatch]) -> Iterator[list[JournalBatch]]:
    """Divide batches into portions that go on the wire one after the other."""
    portion: list[JournalBatch] = []
    size = 0
    for batch in batches:
        if portion and size + len(batch.events) > PORTION_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(batch)
        size += len(batch.events)
    if portion:
        yield portion
