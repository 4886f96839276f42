"""Durable subscriptions in the grid: places that outlive sessions (P14). See ``gateway.ports`` for the rules."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from gateway.core.types import SessionId
from gateway.ports.session_records import Ownership

MOST_DURABLES: Final = 100
"""Durable subscriptions of one principal: a few for each of its programs (P20)."""

MOST_DURABLES_TOGETHER: Final = 10_000
"""Those that a topic partition holds, of all principals: some 5 MB (P20)."""


class DurableName(NamedTuple):
    """What a durable subscription is found by.

    Attributes:
        principal: whose it is; any of its sessions may take it up.
        name: what the principal calls it.
    """

    principal: str
    name: str


class DurableTerms(NamedTuple):
    """What it is, and stays.

    Attributes:
        selector: which topics.
        life: seconds for which it outlives the last session that used it.
        shared: whether any number of sessions use it, each of which is given a part of the events; who they are, and up
            to where it was read, is known to its queue then.
    """

    selector: str
    life: float
    shared: bool = False


class Durable(NamedTuple):
    """A durable subscription as the grid holds it.

    Attributes:
        name: of it.
        terms: what it is.
        position: up to where everything has been acknowledged: event ids of different partitions with commas between
            them, in the order of their partitions; empty for nothing yet.
        session: that uses it; None for none.
        made: when it was made, in milliseconds since 1970 by the time of the grid.
        until: when it is forgotten unless somebody uses it, likewise; None while somebody does. Of a shared one it is
            then looked whether somebody consumes.
    """

    name: DurableName
    terms: DurableTerms
    position: str
    session: SessionId | None
    made: int
    until: int | None


class Opened(NamedTuple):
    """A session uses a durable subscription from now on, and no other one does.

    Attributes:
        position: where it goes on, as of ``Durable``.
        created: whether there was none before.
    """

    position: str
    created: bool


class InUse(NamedTuple):
    """Another session uses it.

    Attributes:
        session: which.
    """

    session: SessionId


class Different(NamedTuple):
    """There is one of this name for other topics; or one is shared, and the other is not.

    Attributes:
        selector: which.
    """

    selector: str


class NotOpened(StrEnum):
    """Why a session may not use a durable subscription."""

    ABSENT = "absent"
    """There is none of this name, and none was to be made."""
    FULL = "full"
    """There are as many as there may be."""
    REMOVING = "removing"
    """Its removal was begun. Whoever meets this finishes it, or finds it used, and asks again."""


OpenResult: TypeAlias = Opened | InUse | Different | NotOpened


class Advance(StrEnum):
    """What became of an acknowledgement."""

    DONE = "done"
    TAKEN = "taken"
    """Another session uses the subscription now, or nobody does; nothing was changed."""
    ABSENT = "absent"
    """There is none of this name any more."""


class DurableStore(Protocol):
    """Durable subscriptions: what a principal's program has read of topics with history, whichever session it reads by.

    At most one session uses one of them at a time, and only that one moves its place, by the newest epoch that has used
    it (P3). A place only moves forward, for each partition by itself.
    """

    async def open(
        self,
        ownership: Ownership,
        name: DurableName,
        terms: DurableTerms,
        *,
        start: str | None,
        instead_of: SessionId | None = None,
    ) -> OpenResult:
        """Let a session use a durable subscription; asking again does no harm, and a newer epoch goes on with it.

        Args:
            ownership: of the session.
            name: which.
            terms: what it is; its life is the newest that was asked for.
            start: position of one that is made; None if none is to be made.
            instead_of: the session that it is taken from, if that uses it still.

        Raises:
            Fenced: a newer owner of the session uses it, or the session has ended.
            GridRefused: no memory; nothing was done.
            GridUnavailable: see the module.
        """

    async def advance(self, ownership: Ownership, name: DurableName, position: str) -> Advance:
        """Acknowledge everything up to a position; harmless if that is behind what was acknowledged before.

        Raises:
            Fenced: a newer owner of the session uses it.
            GridRefused: the grid refuses to write; nothing was done.
            GridUnavailable: see the module.
        """

    async def release(self, ownership: Ownership, name: DurableName) -> None:
        """Let a session use it no more; the subscription and its place stay. Harmless if the session does not use it.

        The end of a session does the same for all that it uses.

        Raises:
            Fenced: a newer owner of the session uses it.
            GridUnavailable: see the module.
        """

    async def remove(self, name: DurableName, *, by: SessionId | None = None) -> InUse | bool:
        """Forget a durable subscription.

        Args:
            name: which.
            by: a session of the principal, which may not do so while another one uses it; None for whoever may.

        Returns:
            Whether there was one; or who uses it, and then nothing was done.

        Raises:
            GridUnavailable: see the module.
        """

    async def due(self, partition: int, *, limit: int) -> Sequence[Durable]:
        """List those of a topic partition that nobody has used for their life.

        Args:
            partition: which.
            limit: most to list.

        Raises:
            GridUnavailable: see the module.
        """

    async def begin_removal(self, name: DurableName, *, over: bool) -> bool:
        """Have nobody open a shared one any more, until it is forgotten with its queue, or ``prolong`` keeps it.

        The queue is removed in a step of its own. In between the subscription is among those that are over, so that the
        removal is finished by somebody though whoever began it dies. Asked twice, the second time changes nothing.

        Args:
            name: which.
            over: only if its life is over, as far as is known here.

        Returns:
            Whether its removal has begun; False if there is no shared one of this name, or its life is not over.

        Raises:
            GridUnavailable: see the module.
        """

    async def expire(self, name: DurableName) -> bool:
        """Forget one if its life is over; tells whether this call did. Any number of nodes may ask.

        Raises:
            GridUnavailable: see the module.
        """

    async def prolong(self, name: DurableName, *, used: int | None = None) -> None:
        """Begin another life of one whose life is over, as it is used all the same: of a shared one that is consumed.

        If its removal was begun, it is removed no more.

        Args:
            name: which.
            used: when it was used last, in milliseconds since 1970 by the time of the grid; None for now.

        Raises:
            GridUnavailable: see the module.
        """

    async def find(self, name: DurableName) -> Durable | None:
        """Read one.

        Raises:
            GridUnavailable: see the module.
        """

    async def page(self, partition: int, *, after: DurableName | None, count: int) -> Sequence[Durable]:
        """Read some of a topic partition in the order of their names; fewer than *count* if these are the last.

        Args:
            partition: which.
            after: behind which to begin; None for the first.
            count: most to read.

        Raises:
            GridUnavailable: see the module.
        """
