"""Members of trees that an in-memory grid holds, one method per atomic step, as the Lua of the Redis adapter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from gateway.adapters.memory.topic_table import Topics
from gateway.core.destinations.presence import count_topic, count_value, member_topic
from gateway.core.topics.topics import topic_partition
from gateway.core.types import Epoch, GridGeneration, SessionId, TopicPath
from gateway.ports import (
    COUNTS_APART,
    PRESENCE_REMOVAL,
    Enter,
    Entered,
    Fenced,
    Leave,
    Ownership,
    TellMembers,
    Untold,
)

LISTED: Final = b""
"""In the place of what is to be told of a member: there is a topic of it."""


@dataclass(slots=True)
class _Tree:
    """A tree with members.

    Attributes:
        members: what is to be told of it, by session; empty if there is a topic of it.
        told: when the count was told, by the grid's clock in seconds; None if it is not.
        due: when it is to be told; None if it was.
    """

    members: dict[SessionId, bytes] = field(default_factory=dict)
    told: float | None = None
    due: float | None = None

    @property
    def listed(self) -> int:
        """How many members there are topics of."""
        return sum(not each for each in self.members.values())


@dataclass(slots=True)
class _Watch:
    """Somebody watches a partition.

    Attributes:
        until: until when, by the grid's clock in seconds.
        since: since when.
        all_told: whether all is told that is to be.
    """

    until: float
    since: str
    all_told: bool = False


class PresenceTable:
    """All members of all trees. Every method is one atomic step; *now* is the grid's clock in seconds.

    Args:
        topics: of the grid, where it is told.
        depth: leading path segments that decide a topic's partition.
    """

    def __init__(self, topics: Topics, depth: int) -> None:
        self._topics = topics
        self._depth = depth
        self._trees: dict[TopicPath, _Tree] = {}
        self._epochs: dict[tuple[SessionId, int], Epoch] = {}
        self._watches: dict[int, _Watch] = {}

    def partition(self, tree: TopicPath) -> int:
        """Tell the topic partition of a tree."""
        return topic_partition(count_topic(tree), self._depth)

    def enter(self, entry: Enter, generation: GridGeneration, now: float) -> Entered | Fenced:
        """See ``PresenceStore.enter``."""
        if (fenced := self._fence(entry.ownership, entry.tree)) is not None:
            return fenced
        session, value = entry.ownership.session, entry.value
        tree = self._trees.setdefault(entry.tree, _Tree())
        before = tree.members.get(session)
        if before == LISTED:
            self._topics.keep(member_topic(entry.tree, session), value, generation)
            return Entered(joined=False, listed=True)
        watched = self._is_watched(entry.tree, now)
        shown = watched and self._list(entry.tree, session, value, entry, generation)
        tree.members[session] = LISTED if shown else value
        if shown or before is None:
            self._changed(entry.tree, generation, now)
        return Entered(before is None, shown)

    def leave(self, leave: Leave, generation: GridGeneration, now: float) -> bool | Fenced:
        """See ``PresenceStore.leave``."""
        fenced = self._fence(leave.ownership, leave.tree)
        return self._leave(leave.ownership.session, leave.tree, generation, now) if fenced is None else fenced

    def forget(self, session: SessionId, generation: GridGeneration, now: float) -> None:
        """Take a session out of all trees: it has ended."""
        for tree in [path for path, each in self._trees.items() if session in each.members]:
            self._leave(session, tree, generation, now)
        for place in [each for each in self._epochs if each[0] == session]:
            del self._epochs[place]

    def discard(self, session: SessionId, tree: TopicPath, generation: GridGeneration, now: float) -> bool:
        """See ``PresenceStore.discard``."""
        return self._leave(session, tree, generation, now)

    def watch(self, partitions: Iterable[int], duration: float, now: float) -> list[Untold]:
        """See ``PresenceStore.watch``."""
        for number in partitions:
            watch = self._watches.get(number)
            if watch is None or watch.until <= now:
                watch = self._watches[number] = _Watch(now, repr(now))
            watch.until = max(watch.until, now + duration)
        return [Untold(each, watch.since) for each in partitions if not (watch := self._watches[each]).all_told]

    def tell_members(self, tell: TellMembers, generation: GridGeneration, now: float) -> str | None:
        """See ``PresenceStore.tell_members``."""
        tree = self._trees.get(tell.tree)
        if tree is None:
            return None
        waiting = sorted(each for each, value in tree.members.items() if value and each > (tell.step or ""))
        some = waiting[: tell.at_once]
        for session in some:
            if self._list(tell.tree, session, tree.members[session], tell, generation):
                tree.members[session] = LISTED
        if len(waiting) > tell.at_once and tree.listed < tell.most_listed:
            return some[-1]
        self._tell(tell.tree, generation, now)
        return None

    def all_told(self, untold: Untold) -> None:
        """See ``PresenceStore.all_told``."""
        watch = self._watches.get(untold.partition)
        if watch is not None and watch.since == untold.since:
            watch.all_told = True

    def tell_due(self, partitions: Iterable[int], limit: int, generation: GridGeneration, now: float) -> int:
        """See ``PresenceStore.tell_due``."""
        wanted = set(partitions)
        due = [
            path
            for path, tree in self._trees.items()
            if tree.due is not None and tree.due <= now and self.partition(path) in wanted
        ]
        for path in due[:limit]:
            self._trees[path].told = None
            self._tell(path, generation, now)
        return len(due[:limit])

    def trees(self, partition: int) -> list[TopicPath]:
        """See ``PresenceStore.trees``."""
        return [path for path in self._trees if self.partition(path) == partition]

    def members(self, tree: TopicPath) -> list[SessionId]:
        """Name the members of a tree."""
        found = self._trees.get(tree)
        return [] if found is None else list(found.members)

    def inventory(self) -> set[str]:
        """Name everything that is kept."""
        return {f"member {session} of {path}" for path, tree in self._trees.items() for session in tree.members} | {
            f"epoch of {session} as a member in {number}" for session, number in self._epochs
        }

    # --- inside -------------------------------------------------------------------------------------------------------

    def _fence(self, ownership: Ownership, tree: TopicPath) -> Fenced | None:
        place = ownership.session, self.partition(tree)
        if ownership.epoch < self._epochs.get(place, ownership.epoch):
            return Fenced(f"session {ownership.session} has a newer owner than epoch {ownership.epoch}")
        self._epochs[place] = ownership.epoch
        return None

    def _leave(self, session: SessionId, path: TopicPath, generation: GridGeneration, now: float) -> bool:
        tree = self._trees.get(path)
        if tree is None or session not in tree.members:
            return False
        if tree.members.pop(session) == LISTED:
            self._topics.remove(member_topic(path, session), generation, PRESENCE_REMOVAL, now, None)
        self._changed(path, generation, now)
        return True

    def _is_watched(self, tree: TopicPath, now: float) -> bool:
        watch = self._watches.get(self.partition(tree))
        return watch is not None and watch.until > now

    def _list(
        self, path: TopicPath, session: SessionId, value: bytes, limits: Enter | TellMembers, generation: GridGeneration
    ) -> bool:
        """Tell of a member, if there may be one more of whom it is told."""
        topic, topics = member_topic(path, session), self._topics
        most_topics, most_bytes = limits.most_topics, limits.most_bytes
        if self._trees[path].listed >= limits.most_listed or not topics.has_room(
            topic, value, most_topics=most_topics, most_bytes=most_bytes
        ):
            return False
        topics.keep(topic, value, generation)
        return True

    def _changed(self, path: TopicPath, generation: GridGeneration, now: float) -> None:
        """Other members are there: tell it if somebody watches, else tell no more what is wrong by now."""
        if self._is_watched(path, now):
            self._tell(path, generation, now)
            return
        tree = self._trees[path]
        if tree.told is not None:
            self._topics.remove(count_topic(path), generation, PRESENCE_REMOVAL, now, None)
            tree.told = tree.due = None
        if not tree.members:
            del self._trees[path]

    def _tell(self, path: TopicPath, generation: GridGeneration, now: float) -> None:
        tree = self._trees[path]
        if tree.told is not None and tree.told <= now < tree.told + COUNTS_APART:
            if tree.due is None:
                tree.due = tree.told + COUNTS_APART
            return
        tree.told, tree.due = now, None
        if tree.members:
            self._topics.keep(count_topic(path), count_value(len(tree.members), tree.listed), generation)
        else:
            del self._trees[path]
            self._topics.remove(count_topic(path), generation, PRESENCE_REMOVAL, now, None)
