"""The reading of a stream of a topic partition besides that of its updates: entries follow each other, or are lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from gateway.adapters.redis.foreign import ForeignData
from gateway.core.types import LARGEST_GENERATION, GridGeneration
from gateway.ports import StreamPosition


class PartitionReader(Protocol):
    """Who reads."""

    def arrived(self, partition: int, number: bytes, fields: list[bytes]) -> None:
        """Take in an entry."""

    def lose(self, reading: PartitionReading) -> None:
        """The stream does not go on where it was read."""


class PartitionReading:
    """The reading of one stream.

    Args:
        key: of the stream.
        partition: which.
        position: behind which it is read.
        reader: told of what is there.
        foreign: told of what is not the gateway's; who asks what there is anew has it deleted.

    Attributes:
        key: as given.
        after: the id that XREAD reads after.
        partition: as given.
    """

    __slots__ = ("_foreign", "_position", "_reader", "after", "key", "partition")

    def __init__(
        self, key: str, partition: int, position: StreamPosition, reader: PartitionReader, foreign: ForeignData
    ) -> None:
        self.key = key
        self.partition = partition
        self._reader = reader
        self._foreign = foreign
        self._position = position
        self.after = f"{position.grid_generation}-{position.sequence}"

    def take_in(self, entries: Sequence[Any]) -> None:
        """See ``OtherReading``."""
        for number, fields in entries:
            generation, _, sequence = number.partition(b"-")
            if (int(generation), int(sequence)) != (self._position.grid_generation, self._position.sequence + 1):
                if int(generation) > LARGEST_GENERATION:
                    self._foreign.skipped(self.key, number.decode(), "its id is not one that the gateway gives")
                self._reader.lose(self)
                return
            self._position = position_of(number)
            self._reader.arrived(self.partition, number, fields)
        self.after = f"{self._position.grid_generation}-{self._position.sequence}"

    def lose(self) -> None:
        """See ``OtherReading``."""
        self._reader.lose(self)


def position_of(entry: bytes) -> StreamPosition:
    """Read the id of an entry."""
    generation, _, sequence = entry.partition(b"-")
    return StreamPosition(GridGeneration(int(generation)), int(sequence))
