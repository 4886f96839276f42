"""Of which trees the sessions of this node are members, written by the one rule of fencing (ADR 0142).

**The record counts, and what is told of it follows.** A session becomes a member when its record says so already, and
is none any more before its record says so. So a record names all trees that may know its session, and whoever goes on
with it has to make sure of no more than these: nobody flaps, as entering again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, TypeVar

from gateway.app.context import Context
from gateway.app.registry.fenced_messaging import FencedMessaging
from gateway.app.session.session import PRINCIPAL_PREFIX, Session
from gateway.catalogue import presence_metrics as catalogue
from gateway.core.destinations.membership import NO_TREES, Membership, trees_after, trees_of
from gateway.core.destinations.presence import count_topic, member_value
from gateway.core.topics.selections import Selections
from gateway.core.topics.topics import topic_partition
from gateway.core.types import TopicPath
from gateway.ports import Enter, Entered, Fenced, Leave, Ownership, SessionChanges

T = TypeVar("T")

UNSURE: Final = b""
"""In the place of what is told of a member: nobody knows whether the grid holds it."""

TREES_AT_ONCE: Final = 100
"""Trees that a session enters in one step of the node: some milliseconds of Redis, so that others come through."""


class FencedPresence(FencedMessaging):
    """What the owner of a session writes about trees of topics.

    Args:
        context: of the node.

    Attributes:
        unsettled: sessions that have come to this node since somebody looked, of which it is to be made sure that the
            trees know them.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._table = context.destinations
        self.unsettled: dict[Session, None] = {}

    # --- What others build on -----------------------------------------------------------------------------------------

    async def change(self, session: Session, changes: SessionChanges) -> None:
        """Write a change that a reply is going to promise.

        Raises:
            Outdated, SessionLost: see ``fencing``.
            GridUnavailable: it may have been written.
        """
        await self._write(session, lambda ownership: self._grid.sessions.change(ownership, changes))

    def is_ready(self, session: Session, partitions: set[int]) -> bool:
        """Tell whether a session may publish to some topic partitions now; else ``prepare`` has to be called first."""
        return partitions <= session.publish_partitions and not self.must_restore(session)

    async def prepare(self, session: Session, partitions: set[int]) -> None:
        """Make sure that the session is this node's, if that is not certain, before anything is published in its name.

        Which partitions will hold receipts of it is written ahead, so that its end can remove them (P7).

        Raises:
            Outdated, SessionLost: see ``fencing``.
            GridUnavailable: nobody knows.
        """
        if self.must_restore(session):
            await self._restore_one(session)
        if not partitions <= session.publish_partitions:
            await self.change(session, SessionChanges(publish_partitions=self._places(session, partitions)))
            session.publish_partitions |= partitions

    def _places(self, session: Session, partitions: AbstractSet[int]) -> frozenset[int]:
        """Tell what the grid is to note, so that these partitions are among it, too."""
        session.partitions_asked |= session.publish_partitions | partitions
        return session.partitions_asked

    # --- Trees --------------------------------------------------------------------------------------------------------

    def served(self, session: Session) -> None:
        """A session is this node's now, or its client has come back to it."""
        if session.present is None and self._table.has_presence and self.replicated:
            self.unsettled[session] = None

    def is_settled(self, session: Session) -> bool:
        """Tell whether the trees are known to hold the session as they should."""
        if session.present is None:
            return not self._table.has_presence
        trees = self.trees(session, session.selections)
        if trees != session.present.keys():
            return False
        return all(session.present[tree] == self._told_of(session, tree) for tree in trees)

    async def settle_presence(self, session: Session) -> None:
        """Have the trees hold the session as they should; the caller holds ``session.selecting``.

        Raises:
            Outdated, SessionLost, GridUnavailable, GridRefused: as of ``FencedStore.change``.
        """
        trees = self.trees(session, session.selections)
        await self.leave_trees(session, trees)
        await self.enter_trees(session, trees)

    def trees(self, session: Session, selections: Selections) -> frozenset[TopicPath]:
        """Tell of which trees a session with these selections is a member."""
        table = self._table
        if not (table.has_presence and self.replicated):
            session.trees = None
            return NO_TREES
        known = session.trees
        if known is not None and known.revision == table.revision:
            if known.selections is selections:
                return known.trees
            trees = trees_after(known.selections, known.trees, selections, table)
        else:
            trees = trees_of(selections, table)
        session.trees = Membership(selections, table.revision, trees)
        return trees

    async def leave_trees(self, session: Session, trees: frozenset[TopicPath]) -> None:
        """Take a session out of all trees but these; raises as ``settle_presence``."""
        present = session.present
        if present is None:
            if not trees and not self._table.has_presence:
                return  # as always, where nobody asks for presence
            # What the last owner may have written.
            held = session.selections if session.written is None else session.written
            present = session.present = dict.fromkeys(trees_of(held, self._table), UNSURE)
        if leaving := [tree for tree in present if tree not in trees]:
            left = await self._asked(session, partial(self._leave, leaving))
            for tree in leaving:
                present.pop(tree, None)
            self._metrics.add(catalogue.PRESENCE_CHANGES, left, label="left")

    async def enter_trees(self, session: Session, trees: frozenset[TopicPath]) -> None:
        """Make a session a member of these trees, if it is not; raises as ``settle_presence``."""
        present = session.present
        if present is None or not trees:
            return
        wanted = {tree: value for tree in trees if (value := self._told_of(session, tree)) is not None}
        entering = [(tree, value) for tree, value in wanted.items() if present.get(tree) != value]
        for start in range(0, len(entering), TREES_AT_ONCE):
            some = entering[start : start + TREES_AT_ONCE]
            await self.prepare(session, set(self.partitions_of(tree for tree, _ in some)))
            # From here on the grid may hold them, whatever becomes of the answer.
            present.update(dict.fromkeys((tree for tree, _ in some), UNSURE))
            entered = await self._asked(session, partial(self._enter, some))
            present.update(some)
            for each in entered:
                if each.joined:
                    self._metrics.add(catalogue.PRESENCE_CHANGES, label="joined" if each.listed else "unlisted")

    async def _enter(self, some: Sequence[tuple[TopicPath, bytes]], ownership: Ownership) -> list[Entered]:
        entries = []
        for tree, value in some:
            limits = self._table.presence(tree)
            most = 0 if limits is None else limits.presence_members
            entries.append(
                Enter(ownership, tree, value, most, self._parameters.partition_topics, self._parameters.partition_bytes)
            )
        return _unfenced(await self._grid.presence.enter(entries))

    async def _leave(self, trees: Sequence[TopicPath], ownership: Ownership) -> int:
        return sum(_unfenced(await self._grid.presence.leave([Leave(ownership, tree) for tree in trees])))

    def partitions_of(self, trees: Iterable[TopicPath]) -> frozenset[int]:
        """Tell in which topic partitions trees are."""
        return frozenset([topic_partition(count_topic(each), self._parameters.topic_depth) for each in trees])

    def _told_of(self, session: Session, tree: TopicPath) -> bytes | None:
        limits = self._table.presence(tree)
        if limits is None:
            return None
        properties = session.properties
        if any(name.startswith(PRINCIPAL_PREFIX) for name in limits.shown):
            vouched = {f"{PRINCIPAL_PREFIX}{name}": value for name, value in session.principal_properties.items()}
            properties = {name: value for name, value in properties.items() if not name.startswith("$")} | vouched
        return member_value(session.id, session.principal, properties, limits.shown)


def _unfenced(results: Iterable[T | Fenced]) -> list[T]:
    """Return what has come of steps.

    Raises:
        Fenced: of one of them.
    """
    found: list[T] = []
    for each in results:
        if isinstance(each, Fenced):
            raise each.with_traceback(None)
        found.append(each)
    return found
