"""Destinations in the grid: implements ``gateway.ports.DestinationStore``."""

from __future__ import annotations

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
from gateway.core.destinations.destination import (
    MAX_DESTINATIONS,
    Destination,
    Origin,
    UnreadableDestination,
    decode_destination,
    encode_destination,
    name_prefix,
)
from gateway.core.types import GridGeneration
from gateway.ports import (
    AllDestinations,
    Applied,
    DestinationChanges,
    DestinationNews,
    DestinationRemoved,
    TooManyDestinations,
)

_OTHER_GENERATION: Final = -1
"""What a script answers to a node that has not adopted the grid as it is; see there."""

_TOO_MANY: Final = -2
"""What a script answers that would write more than may be."""

_SHOWN_BYTES: Final = 60
"""Of the name of a destination that cannot be read, in a log event."""


class RedisDestinations:
    """What is said of paths in the whole cluster.

    Args:
        grid: for commands, and to be told of a grid that does not fit.
        keys: names of all keys.
        tail: reads the changes.
        foreign: told of what is not the gateway's, or of a later release.
    """

    def __init__(self, *, grid: GridConnection, keys: Keys, tail: RedisTail, foreign: ForeignData) -> None:
        self._grid = grid
        self._keys = keys
        self._tail = tail
        self._foreign = foreign
        self._news = News(keys.destination_news, self._change, foreign)
        self._read_from = GridGeneration(0)
        grid.when_writes_are_lost(self._lose)

    async def put(self, destination: Destination) -> bool:
        """See ``DestinationStore.put``."""
        changed, *_ = await self._write(
            scripts.DESTINATION_PUT, destination.name, encode_destination(destination), name=destination.name
        )
        return changed > 0

    async def remove(self, name: str) -> bool:
        """See ``DestinationStore.remove``."""
        changed, *_ = await self._write(scripts.DESTINATION_PUT, name, "", name=name)
        return changed > 0

    async def apply(self, origin: Origin, destinations: Sequence[Destination]) -> Applied:
        """See ``DestinationStore.apply``."""
        written, _, removed = await self._write(
            scripts.DESTINATION_APPLY, name_prefix(origin), *_pairs(destinations), name=origin.value
        )
        return Applied(written, removed)

    async def restore(self, destinations: Sequence[Destination]) -> int:
        """See ``DestinationStore.restore``."""
        written, *_ = await self._write(scripts.DESTINATION_RESTORE, *_pairs(destinations), name="")
        return written

    async def follow(self) -> AsyncIterator[DestinationNews]:
        """See ``DestinationStore.follow``."""
        async with aclosing(follow_table(self._grid, self._tail, self._read_all)) as news:
            async for each in news:
                yield DestinationChanges(each) if isinstance(each, tuple) else each

    # --- inside -------------------------------------------------------------------------------------------------------

    def _lose(self) -> None:
        self._news.lose()

    async def _read_all(self) -> tuple[AllDestinations, News[Destination | DestinationRemoved]]:
        keys, generation = self._keys, self._grid.generation
        # Lost, should the grid be another one before the answer is here.
        news = self._news = News(keys.destination_news, self._change, self._foreign)
        revision, swept, *rows = await self._grid.batcher.call(
            scripts.DESTINATION_READ(keys.grid, keys.destinations, keys.destination_news, generation)
        )
        self._check(revision)
        self._foreign.swept(keys.destination_news, swept)
        news.revision = revision
        read = [self._read(name, held) for name, held in zip(rows[::2], rows[1::2], strict=True)]
        lost_writes = self._read_from not in {0, generation}
        self._read_from = generation
        return AllDestinations(tuple(each for each in read if each is not None), lost_writes), news

    async def _write(self, script: Script, *arguments: Argument, name: str) -> list[int]:
        keys = self._keys
        reply: list[int] = await self._grid.batcher.call(
            script(
                *(keys.grid, keys.destinations, keys.destination_news),
                *(self._grid.generation, CHANGES_KEPT, MAX_DESTINATIONS),
                *arguments,
            )
        )
        self._check(reply[0])
        self._foreign.swept(keys.destination_news, reply[1])
        if reply[0] == _TOO_MANY:
            raise TooManyDestinations(
                f"the cluster holds at most {MAX_DESTINATIONS:,} destinations, and there is no room for {name!r}; "
                "remove some, or describe several by one selector"
            )
        return reply

    def _change(self, name: bytes, held: bytes) -> Destination | DestinationRemoved:
        """Read a change; what a later release wrote is as good as removed.

        Raises:
            ValueError: the name is no text.
        """
        text = name.decode()
        return (self._read(name, held) if held else None) or DestinationRemoved(text)

    def _read(self, name: bytes, held: bytes) -> Destination | None:
        try:
            return decode_destination(name.decode(), held)
        except (UnreadableDestination, UnicodeDecodeError) as error:
            self._foreign.skipped(self._keys.destinations, repr(name[:_SHOWN_BYTES]), error)
            return None

    def _check(self, reply: int) -> None:
        if reply == _OTHER_GENERATION:
            raise self._grid.stale()


def _pairs(destinations: Sequence[Destination]) -> list[Argument]:
    return [argument for each in destinations for argument in (each.name, encode_destination(each))]
