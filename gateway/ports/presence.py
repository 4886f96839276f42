"""Who has subscribed to trees of topics. See ``gateway.ports`` for the rules that hold for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from gateway.core.types import SessionId, TopicPath
from gateway.ports.errors import Fenced
from gateway.ports.session_records import Ownership

COUNTS_APART: Final = 1.0
"""Seconds between two counts of a tree that are told, at least: while thousands come, each who watches is told how many
there are once a second, and not thousands of times."""

PRESENCE_REMOVAL: Final = 600.0
"""Seconds for which it is remembered that a member has left, for those who watch and were away meanwhile. A removal
takes some 200 bytes of the grid, and sessions come and go all the time."""


class Enter(NamedTuple):
    """A session becomes a member of a tree, or other things are told of it.

    Attributes:
        ownership: by which right.
        tree: path of the tree.
        value: what is told of the member, JSON text.
        most_listed: members of the tree of which there are topics.
        most_topics: topics of the partition, 0 for no limit; without room the member is counted and not listed.
        most_bytes: bytes of its values, likewise.
    """

    ownership: Ownership
    tree: TopicPath
    value: bytes
    most_listed: int
    most_topics: int = 0
    most_bytes: int = 0


class Leave(NamedTuple):
    """A session is no member any more.

    Attributes:
        ownership: by which right.
        tree: path of the tree.
    """

    ownership: Ownership
    tree: TopicPath


class Entered(NamedTuple):
    """What has come of it.

    Attributes:
        joined: it was no member before.
        listed: there is a topic of it; never of one that comes while nobody watches.
    """

    joined: bool
    listed: bool


class TellMembers(NamedTuple):
    """Members of a tree who came while nobody watched are to be told of.

    Attributes:
        tree: path of the tree.
        step: where to go on, as the step before said; None to begin.
        most_listed: as of ``Enter``.
        most_topics: likewise.
        most_bytes: likewise.
        at_once: members to look at, about.
    """

    tree: TopicPath
    step: str | None
    most_listed: int
    most_topics: int
    most_bytes: int
    at_once: int


class Untold(NamedTuple):
    """A topic partition in which not all is told that is to be.

    Attributes:
        partition: which.
        since: since when somebody watches it, for ``PresenceStore.all_told``.
    """

    partition: int
    since: str


class MemberPage(NamedTuple):
    """Some members of a tree.

    Attributes:
        sessions: in no order; one may come twice while others come and go.
        next: where the next page begins; None if there is nothing after this one.
    """

    sessions: Sequence[SessionId]
    next: str | None


class PresenceStore(Protocol):
    """Members of trees in the grid, each session once in each tree; and the topics that tell of them.

    A member is there until it leaves or its session ends (``SessionStore.end`` and ``expire``), whatever becomes of its
    node. Members of a tree, their number, and the topics that tell of them change in one atomic step; the topic with
    the number follows within ``COUNTS_APART`` if it was told a moment ago.

    While nobody watches a topic partition, only who is a member is kept: nothing new is told there, and a count that
    has become wrong is removed. Whoever wants to know says so (``watch``), and has told what is missing
    (``tell_members`` of each of ``trees``, then ``all_told``). So what is told is always right, and it is complete once
    that is done.

    The topic partition in which a tree is (``count_topic`` tells it) has to be among those that the session's record
    names (``publish_partitions``) before it enters, as the end of the session looks there alone.
    """

    async def enter(self, entries: Sequence[Enter]) -> list[Entered | Fenced]:
        """Make sessions members. Repeating it has no further effect.

        Returns:
            For each what has come of it; Fenced if a newer owner of the session was here, or the session has ended.

        Raises:
            GridRefused: the grid is full.
            GridUnavailable: see the module; some may have been done.
        """

    async def leave(self, leaves: Sequence[Leave]) -> list[bool | Fenced]:
        """Make sessions no members any more. Repeating it has no further effect; works also in a full grid.

        Returns:
            For each whether it was one; Fenced as of ``enter``.

        Raises:
            GridUnavailable: see the module; some may have been done.
        """

    async def watch(self, partitions: Sequence[int], *, duration: float) -> list[Untold]:
        """Say that somebody watches trees of partitions, for so many seconds from now; works also in a full grid.

        Returns:
            Those of which not all is told, as nobody watched them before, or whoever did has not got to the end.

        Raises:
            GridUnavailable: see the module; some may be watched.
        """

    async def tell_members(self, tell: TellMembers) -> str | None:
        """Tell of some members of a tree who came while nobody watched, and at last of their number.

        In a full grid their number alone is told.

        Returns:
            Where to go on; None if that was all.

        Raises:
            GridUnavailable: see the module; some may have been told.
        """

    async def all_told(self, untold: Untold) -> None:
        """Say that all trees of a partition have been told of, unless nobody watched it meanwhile.

        Raises:
            GridUnavailable: see the module.
        """

    async def tell_due(self, partitions: Sequence[int], *, limit: int) -> int:
        """Tell the counts of trees that are due, of so many of each partition.

        Returns:
            How many were told.

        Raises:
            GridUnavailable: see the module.
        """

    async def trees(self, partition: int) -> list[TopicPath]:
        """List the trees of a topic partition that have members.

        Raises:
            GridUnavailable: see the module.
        """

    async def members(self, tree: TopicPath, *, step: str | None, count: int) -> MemberPage:
        """List members of a tree, about so many at a time.

        Args:
            tree: its path.
            step: where to begin, as the page before said; None for the first.
            count: how many, about.

        Raises:
            GridUnavailable: see the module.
        """

    async def counts(self, trees: Sequence[TopicPath]) -> list[int]:
        """Tell how many members trees have, whether or not somebody watches.

        Raises:
            GridUnavailable: see the module.
        """

    async def discard(self, tree: TopicPath, sessions: Sequence[SessionId]) -> int:
        """Take sessions out of a tree of which the grid holds nothing else any more, as it has gone back.

        Returns:
            How many were members.

        Raises:
            GridUnavailable: see the module; some may have been done.
        """
