"""How far a client has come in the streams of topics: what it tells a node that has to replay what it missed (P13).

```text
stream of a partition:   e1  e2  e3  e4  e5  e6  e7 …
what the client got:     e1  e4* e2  e3      e6            * folded: it ran ahead, and says nothing of e2 and e3
its position:                            ^ e3, then e6: everything that it selects, up to there
```

A live update that took the place of none leaves in the order of the stream, and what is folded takes the place of
something older. So everything up to the event of an update without ``folded`` has come before it, or something newer
has in its place. Snapshots come in no order, and say nothing. From when on a position holds at all is said by the
server, once all current values have been sent that were due: by the notice ``snapshots_complete``, which names the
position itself, as there may be no update for a long time.

A subscribe whose snapshots have not all come makes no position wrong. It is named besides, and its snapshots come
again. So is one without an answer: it may have been executed, and then it brings no snapshots when it is asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gateway.core.topics.versions import place_of
from gateway.core.types import EventId, RequestNumber
from gateway.core.wire.packets import Notice

MOST_UNFINISHED: Final = 16
"""Subscribes named whose snapshots have not all come: as many as a server takes up at a time for one session."""

MOST_UNFINISHED_BYTES: Final = 4096
"""Bytes of their selectors: a sixteenth of what the first message of a connection may have."""

MOST_KNOWN: Final = 64
"""Such subscribes that are kept in mind. A node that sends no notices never ends one."""


class Positions:
    """Where a client is in each topic partition.

    Attributes:
        interruptions: how often live updates might not follow what came before.
        settlements: how often all current values of a subscribe, or after that, had come.
        latest: the event of the last live update that took the place of none, by the text before its first dash. Filled
            by whoever receives updates, for each of them.
    """

    __slots__ = ("_named", "_since", "_too_many", "_unfinished", "interruptions", "latest", "settlements")

    def __init__(self) -> None:
        self.latest: dict[str, str] = {}
        self._since: dict[str, str] = {}
        """From where on positions hold, by partition, as servers have said."""
        self._unfinished: dict[RequestNumber, str] = {}
        self._too_many = False
        self._named = False
        self.interruptions = 0
        self.settlements = 0

    def settled(self) -> frozenset[int]:
        """Name the partitions of which all current values have come, so that what is selected comes live and in order.

        None while those of a subscribe have yet to come: which partitions they are of is not known here.
        """
        if self._unfinished or self._too_many:
            return frozenset()
        return frozenset(map(int, self._since))

    # --- What comes ---------------------------------------------------------------------------------------------------

    def subscribed(self, request: RequestNumber, selector: str) -> None:
        """A subscribe was executed: its snapshots begin to come."""
        if len(self._unfinished) >= MOST_KNOWN:
            self._too_many = True
        else:
            self._unfinished[request] = selector

    def completed(self, notice: Notice) -> None:
        """The server says that all current values have been sent that were due."""
        if notice.request is not None:
            self._unfinished.pop(notice.request, None)
        self.settlements += 1
        for number, event in (notice.positions or {}).items():
            self._since[str(number)] = event

    def reread(self, partitions: Iterable[int] | None) -> None:
        """The server sends current values in place of each update between, until it says that they are complete.

        Args:
            partitions: of which; None for all.
        """
        if partitions is None:
            self._forget(list(self._since))
        else:
            self._forget(map(str, partitions))

    # --- Resuming -----------------------------------------------------------------------------------------------------

    def named(self, unanswered: Mapping[RequestNumber, str]) -> tuple[dict[int, EventId], dict[RequestNumber, str]]:
        """Tell what a resume says.

        Args:
            unanswered: selectors of subscribes that have no answer yet, by request.

        Returns:
            Positions by partition, and the selectors of subscribes whose snapshots have not all come, by request. No
            positions if there are too many of these.
        """
        unfinished = {**self._unfinished, **unanswered}
        size = sum(len(selector.encode()) for selector in unfinished.values())
        self._named = not (self._too_many or len(unfinished) > MOST_UNFINISHED or size > MOST_UNFINISHED_BYTES)
        if not self._named or not self._since:
            self._named = False
            return {}, {}
        return {int(text): self._position(text, since) for text, since in self._since.items()}, unfinished

    def nothing_named(self) -> None:
        """What ``named`` told was not said after all."""
        self._named = False

    def restarted(self, replayed: object) -> bool:
        """The session goes on at a node that had no buffers of it.

        Args:
            replayed: of the welcome.

        Returns:
            Whether everything that was missed follows, and no current values in its place.
        """
        if self._named and replayed is True:
            return True
        if self._named and isinstance(replayed, Mapping):
            self._forget(map(str, replayed))
        else:
            self._forget(list(self._since))
            self.latest.clear()
            self._unfinished.clear()
            self._too_many = False
        return False

    # --- Inside -------------------------------------------------------------------------------------------------------

    def _position(self, text: str, since: str) -> EventId:
        latest = self.latest.get(text)
        return EventId(since if latest is None or _place(latest) < _place(since) else latest)

    def _forget(self, partitions: Iterable[str]) -> None:
        self.interruptions += 1
        for text in partitions:
            self._since.pop(text, None)
            self.latest.pop(text, None)


def _place(event: str) -> tuple[int, int]:
    """Read where in the stream of its partition an event is; before all others if it is none."""
    try:
        return place_of(EventId(event))
    except ValueError:
        return -1, -1
