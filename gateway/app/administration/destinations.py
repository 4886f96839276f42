"""What paths are, as an administrator sees and changes it; implements ``DestinationAdministration``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.app.administration.cursors import Place, from_cursor, to_cursor
from gateway.app.context import Context
from gateway.app.destinations.destinations import Destinations
from gateway.core.destinations.destination import Destination, Origin, read_destination
from gateway.core.destinations.limits import DECLARABLE, InvalidDestination, Kind, limit_fields
from gateway.core.destinations.presence import count_topic, pattern_of, watching
from gateway.core.destinations.table import place_in_list
from gateway.core.topics.selectors import Selector, parse_selector, partitions
from gateway.core.topics.topics import SEPARATOR, TOPIC_PARTITIONS, topic_partition
from gateway.core.types import TopicPath
from gateway.core.wire.errors import InvalidSelector
from gateway.ports import TooManyDestinations
from gateway.ports.administration import BadParameter, Conflict, DestinationView, NotThere, Page, TreeView


class ClusterDestinations:
    """What paths are, as every node knows it.

    Args:
        context: of the node.
        destinations: of this node.
    """

    def __init__(self, context: Context, destinations: Destinations) -> None:
        self._presence = context.grid.presence
        self._depth = context.parameters.topic_depth
        self._destinations = destinations

    async def list(self, *, cursor: str | None, limit: int) -> Page[DestinationView]:
        """See ``DestinationAdministration.list``."""
        place = from_cursor(cursor, partitions=1)
        found = self._destinations.table.after((place.after or "", place.step or ""), limit + 1)
        page = found[:limit]
        if len(found) == len(page):
            return Page([self._view(each) for each in page], None)
        selector, origin = place_in_list(page[-1])
        return Page([self._view(each) for each in page], to_cursor(Place(after=selector, step=origin)))

    async def find(self, selector: str) -> DestinationView:
        """See ``DestinationAdministration.find``."""
        chosen = _selector(selector)
        table = self._destinations.table
        if chosen.literal:
            found = table.find(TopicPath(chosen.text))
        else:
            found = table.get(Origin.ADMINISTRATOR, chosen) or table.get(Origin.FILE, chosen)
        if found is None:
            raise NotThere("destination", _NOBODY)
        return self._view(found)

    async def trees(self, selector: str, *, cursor: str | None, limit: int) -> Page[TreeView]:
        """See ``DestinationAdministration.trees``."""
        chosen = _selector(selector)
        table = self._destinations.table
        said = table.get(Origin.ADMINISTRATOR, chosen) or table.get(Origin.FILE, chosen)
        pattern = pattern_of(chosen)
        if said is None or not pattern or not limit_fields(said.limits).get("presence"):
            raise NotThere("destination", "nobody says of this very selector that it tells who is present")
        place = from_cursor(cursor, partitions=TOPIC_PARTITIONS)
        found: list[TopicPath] = []
        counts, _ = watching(SEPARATOR.join(pattern))
        for number in sorted(partitions(parse_selector(counts), self._depth)):
            if number < place.partition:
                continue
            after = (place.after or "") if number == place.partition else ""
            for tree in sorted(await self._presence.trees(number)):
                if tree <= after or table.presence(tree) is None or table.find(tree) is not said:
                    continue
                if len(found) == limit:
                    return Page(await self._counted(found), to_cursor(self._place(found[-1])))
                found.append(tree)
        return Page(await self._counted(found), None)

    async def set(self, selector: str, kind: str, limits: Mapping[str, object]) -> DestinationView:
        """See ``DestinationAdministration.set``."""
        place = "path" if kind == Kind.QUEUE.value else "selector"
        try:
            said = read_destination(
                {**limits, "kind": kind, place: selector}, origin=Origin.ADMINISTRATOR, kinds=DECLARABLE
            )
        except InvalidDestination as invalid:
            raise BadParameter(invalid.field, str(invalid)) from None
        try:
            return self._view(await self._destinations.set(said))
        except TooManyDestinations as too_many:
            raise Conflict(str(too_many)) from None

    async def remove(self, selector: str) -> None:
        """See ``DestinationAdministration.remove``."""
        chosen = _selector(selector)
        if await self._destinations.remove(Origin.ADMINISTRATOR, chosen):
            return
        if self._destinations.table.get(Origin.FILE, chosen) is not None:
            raise Conflict(
                "the file of destinations says what this is; change the file and have a node read it (SIGHUP), or say "
                "something else here, which counts more"
            )
        raise NotThere("destination", "no administrator has said anything of this selector")

    async def _counted(self, trees: Sequence[TopicPath]) -> Sequence[TreeView]:
        """Tell how many members trees have; those that have lost the last one meanwhile are left out."""
        counted = zip(trees, await self._presence.counts(trees), strict=True)
        return [TreeView(tree, members) for tree, members in counted if members]

    def _place(self, tree: TopicPath) -> Place:
        return Place(topic_partition(count_topic(tree), self._depth), after=tree)

    def _view(self, destination: Destination) -> DestinationView:
        table = self._destinations.table
        return DestinationView(
            selector=destination.selector.text,
            kind=destination.kind.value,
            limits=limit_fields(destination.limits),
            origin=destination.origin,
            made=destination.made,
            in_force=table.named(destination.name) is destination and table.counts(destination),
        )


_NOBODY = "nobody says what this is: a path is a plain value, of which the newest is kept"


def _selector(text: str) -> Selector:
    try:
        return parse_selector(text)
    except InvalidSelector as invalid:
        raise BadParameter("selector", str(invalid)) from None
