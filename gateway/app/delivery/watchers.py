"""Who watches the system's topics: the sessions here, and whether anybody does at another node."""

from __future__ import annotations

import asyncio

from gateway.app.delivery.presence_watch import PresenceWatch
from gateway.app.session.session import Session
from gateway.core.topics.selections import Selections
from gateway.core.topics.selectors import Selector
from gateway.core.topics.topics import SYSTEM_ROOT


class Watchers:
    """The sessions of this node that select topics of the system, and what other nodes say of theirs.

    Args:
        presence: has told who has subscribed to trees.

    Attributes:
        presence: see above.
        elsewhere: whether somebody watches at another node, as the last renewal of the lease told.
    """

    def __init__(self, presence: PresenceWatch) -> None:
        self.presence = presence
        self._sessions: set[Session] = set()
        self._news = asyncio.Event()
        self.elsewhere = False

    @property
    def here(self) -> bool:
        """Whether somebody watches at this node."""
        return bool(self._sessions)

    def selects(self, session: Session, selections: Selections) -> None:
        """A session is sent from now on what *selections* select."""
        self.presence.selects(session, selections)
        if selections.of_system and any(each.selects and _is_of_node(each.selector) for each in selections.entries):
            if not self._sessions:
                self._news.set()
            self._sessions.add(session)
        else:
            self._sessions.discard(session)

    def forget(self, session: Session) -> None:
        """A session is not this node's any more."""
        self._sessions.discard(session)
        self.presence.forget(session)

    def told(self, *, watched: bool) -> None:
        """The grid has told whether somebody watches at any node."""
        self.elsewhere = watched
        if watched:
            self._news.set()

    async def somebody(self) -> None:
        """Wait until somebody watches; asks nothing of the grid meanwhile (P11)."""
        while not (self._sessions or self.elsewhere):
            self._news.clear()
            await self._news.wait()


def _is_of_node(selector: Selector) -> bool:
    """Tell whether a selector selects topics by which nodes tell of themselves; who is present is told of by others."""
    return selector.segments[0] == SYSTEM_ROOT
