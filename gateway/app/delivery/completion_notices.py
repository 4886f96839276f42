"""The notice ``snapshots_complete``: from here on a client knows where it is in the streams (protocol 10.6, P13).

A session that is sent current values gets updates between them, and nothing tells of which topics the value is still to
come. So a client that goes by updates alone could take itself for further than it is. It is told when all values have
been sent, by a notice behind the last of them, and up to which place it has had everything then: the node's own place.

Clients that did not ask for it are told nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from gateway.app.delivery.replicas import Replicas
from gateway.app.session.session import Session
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.types import EventId, RequestNumber
from gateway.core.wire import codec
from gateway.core.wire.packets import Notice, NoticeCode
from gateway.core.wire.support import understands


class CompletionNotices:
    """Makes these notices.

    Args:
        replicas: the copies of partitions.

    Attributes:
        restoring: sessions that will be sent the values of everything they select, and do not have them in line yet.
        rereading: partitions of which sessions have been told that current values follow, and have not been sent all.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._last: tuple[object, Run] | None = None
        self.restoring: set[Session] = set()
        self.rereading: set[int] = set()

    def behind(
        self, session: Session, numbers: frozenset[int], request: RequestNumber | None = None
    ) -> Callable[[], Run | None] | None:
        """Return what makes the notice behind the last value of a feed; None for who does not want it.

        Args:
            session: which.
            numbers: the partitions in which the values are.
            request: the subscribe that they answer; None if they answer none.
        """
        return partial(self.make, session, numbers, request) if is_told(session) else None

    def make(self, session: Session, numbers: Iterable[int], request: RequestNumber | None = None) -> Run | None:
        """Make the notice that a session has been sent all that it is to have of some partitions, as of now.

        Nothing is said of those of which it will be sent the values again.

        Returns:
            The notice; None if there is nothing to say.
        """
        places = {} if session in self.restoring else self._places(numbers)
        if not places and request is None:
            return None
        # The same for all sessions of a storm that select the same.
        key = (tuple(places.items()), request)
        if self._last is None or self._last[0] != key:
            notice = Notice(
                NoticeCode.SNAPSHOTS_COMPLETE,
                "All current values that were due have been sent.",
                partitions=tuple(places),
                positions=places,
                request=request,
            )
            self._last = key, Run.of(Outgoing(None, codec.encode_notice(notice)))
        return self._last[1]

    def _places(self, numbers: Iterable[int]) -> dict[int, EventId]:
        places: dict[int, EventId] = {}
        for number in sorted(numbers):
            partition = self._replicas.get(number)
            if partition is not None and partition.complete.is_set() and number not in self.rereading:
                places[number] = partition.position.event(number)
        return places


def is_told(session: Session) -> bool:
    """Tell whether a client is told where it is (protocol 4.1.1)."""
    return understands(session.supports, NoticeCode.SNAPSHOTS_COMPLETE)
