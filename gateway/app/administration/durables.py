"""Durable subscriptions, as an administrator sees and removes them; implements ``DurableAdministration``."""

from __future__ import annotations

from typing import Final

from gateway.app.administration.cursors import Place, from_cursor, to_cursor
from gateway.app.registry.durable_removal import DurableRemoval
from gateway.core.topics.topics import TOPIC_PARTITIONS
from gateway.ports import Durable, DurableName, DurableStore, QueueStore
from gateway.ports.administration import NotThere, Page
from gateway.ports.durable_administration import DurableView

_MS: Final = 1000
"""Milliseconds in a second, in which the grid says when."""


class ClusterDurables:
    """Durable subscriptions, as the grid knows them.

    Args:
        durables: in the grid.
        queues: likewise.
    """

    def __init__(self, durables: DurableStore, queues: QueueStore) -> None:
        self._durables = durables
        self._removal = DurableRemoval(durables, queues)

    async def list(self, *, cursor: str | None, limit: int) -> Page[DurableView]:
        """See ``DurableAdministration.list``."""
        place = from_cursor(cursor, partitions=TOPIC_PARTITIONS)
        after = None if place.step is None or place.after is None else DurableName(place.step, place.after)
        found: list[Durable] = []
        for partition in range(place.partition, TOPIC_PARTITIONS):
            found += await self._durables.page(partition, after=after, count=limit - len(found))
            after = None
            if len(found) == limit:
                last = found[-1].name
                return Page([_view(each) for each in found], to_cursor(Place(partition, last.principal, last.name)))
        return Page([_view(each) for each in found], None)

    async def remove(self, principal: str, name: str) -> None:
        """See ``DurableAdministration.remove``."""
        durable = DurableName(principal, name)
        await self._removal.begin_and_remove_queue(durable, force=True)
        if not await self._durables.remove(durable):
            raise NotThere("durable", f"{principal} has no durable subscription {name}")


def _view(each: Durable) -> DurableView:
    return DurableView(
        principal=each.name.principal,
        name=each.name.name,
        selector=each.terms.selector,
        shared=each.terms.shared,
        session=each.session,
        position=each.position,
        made=each.made / _MS,
        until=None if each.until is None else each.until / _MS,
    )
