"""A reader of topic streams, as nodes have one: follows partitions, and checks whatever it is given."""

from __future__ import annotations

from collections import defaultdict

from gateway.ports import Grid, PositionLost, StreamPosition, TailBatch, TopicValue
from tests.contract.listening import Reader
from tests.support.clock import eventually


class Follower(Reader):
    """Reads the tail of one node.

    Attributes:
        values: all values that came, by partition, in order.
        positions: of the last batch, by partition.
        lost: partitions whose position was lost, in order.
    """

    def __init__(self, grid: Grid) -> None:
        super().__init__(grid)
        self.values: defaultdict[int, list[TopicValue]] = defaultdict(list)
        self.positions: dict[int, StreamPosition] = {}
        self.lost: list[int] = []

    async def follow_from_here(self, *partitions: int) -> None:
        """Follow partitions from the ends of their streams."""
        for partition in partitions:
            self.follow(partition, await self.grid.topics.position(partition))

    def follow(self, partition: int, position: StreamPosition) -> None:
        """Follow a partition from *position*."""
        self.positions[partition] = position
        self.grid.tail.follow(partition, position)

    def events(self, partition: int) -> list[str]:
        """List the ids of the events that came."""
        return [value.event for value in self.values[partition]]

    async def has(self, partition: int, count: int) -> list[TopicValue]:
        """Wait until *count* values of a partition have come, and return them."""
        await eventually(
            lambda: len(self.values[partition]) >= count or partition in self.lost,
            message=f"{count} values in partition {partition}",
        )
        assert partition not in self.lost
        return self.values[partition]

    async def has_lost(self, partition: int) -> None:
        """Wait until the position in a partition is lost."""
        await eventually(lambda: partition in self.lost, message=f"the position in partition {partition} is lost")

    async def _read(self) -> None:
        async for item in self.grid.tail.items():
            if isinstance(item, PositionLost):
                self.lost.append(item.partition)
            else:
                self._take(item)

    def _take(self, batch: TailBatch) -> None:
        assert batch.values, "a batch has at least one entry"
        before, after = self.positions[batch.partition], batch.position
        if before.grid_generation == after.grid_generation:
            assert after.sequence - before.sequence == len(batch.values), "no hole, and no duplicate"
        self.values[batch.partition].extend(batch.values)
        self.positions[batch.partition] = after
