"""Sessions that this node has ended lately, so that a grid which goes back to an older state does not revive them (P7).

A replica that is promoted without its tail, or a Redis that comes back from an older file, may have lost the end of a
session together with the records that refuse its tokens. Its client was told that the session has ended. Whoever ended
it ends it again then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.will_packets import WILLS_PROPERTY
from gateway.ports import Ownership, SessionRecord

MOST: Final = 4096
"""Ends that are remembered, the newest: some 4 MB. A node that ends more than that a second loses the rest anyway."""

AGE: Final = 600.0
"""Seconds for which an end is remembered: replicas lag by seconds, and files of Redis are minutes old at most."""


REPEATED_WILLS: Final = 512
"""Characters of a session's wills up to which they are kept with its end: a grid that has lost the end may have lost
what they published, so that they are executed again. Larger ones would take more than all the rest."""


@dataclass(frozen=True, slots=True)
class End:
    """One session that has ended.

    Attributes:
        at: when, in seconds of the node's clock.
        session: what it was, as far as ending it again needs that; or the right by which it was ended unseen.
        reason: why it ended.
        removed: whether an administrator had asked for it.
    """

    at: float
    session: SessionRecord | Ownership
    reason: ErrorCode
    removed: bool = False


class RecentEnds:
    """The newest ends.

    Args:
        now: the node's clock, in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._ends: deque[End] = deque(maxlen=MOST)

    def put(self, session: SessionRecord | Ownership, reason: ErrorCode, *, removed: bool = False) -> None:
        """Remember an end that the grid has confirmed."""
        if isinstance(session, SessionRecord):
            # What takes most of the room, and nobody will look at.
            session = replace(session, selections=())
            wills = session.properties.get(WILLS_PROPERTY, "")
            if not 0 < len(wills) <= REPEATED_WILLS:
                session = replace(session, properties={}, principal_properties={}, roles=frozenset())
            else:
                session = replace(session, properties={WILLS_PROPERTY: wills})
        self._ends.append(End(self._now(), session, reason, removed))

    def __iter__(self) -> Iterator[End]:
        """Yield those that are young enough, the oldest first."""
        oldest = self._now() - AGE
        while self._ends and self._ends[0].at < oldest:
            self._ends.popleft()
        return iter(tuple(self._ends))
