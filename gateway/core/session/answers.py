"""What a session's client has been answered, and what of that it is known to have seen (P5)."""

from __future__ import annotations

from typing import TypeAlias

from gateway.core.types import RequestNumber

Answered: TypeAlias = tuple[int, RequestNumber, RequestNumber]
"""Replies that were queued together: the packet by which they are acknowledged at the latest, and the lowest and the
highest request that they answer; what lies between may be answered by other entries. A plain tuple, as one is made for
every run of publishes."""


class Answers:
    """The replies of one session that its client may not have seen, and how far it has seen all.

    Attributes:
        unseen: replies that are not known to have been acknowledged, in the order of their packets.
        settled: the highest request whose answer has been acknowledged.
        refused: by which packet at the latest a refusal of a request that can be asked again has been seen; 0 for none.
    """

    __slots__ = ("refused", "settled", "unseen")

    def __init__(self) -> None:
        self.unseen: list[Answered] = []
        self.settled = RequestNumber(0)
        self.refused = 0

    def seen(self, acknowledged: int) -> None:
        """The client has acknowledged everything up to a packet."""
        unseen = self.unseen
        while unseen and unseen[0][0] <= acknowledged:
            _, _, last = unseen.pop(0)
            self.settled = max(self.settled, last)

    def settled_before(self, oldest_pending: RequestNumber | None) -> RequestNumber:
        """Tell up to which request every answer has been acknowledged.

        Args:
            oldest_pending: the oldest request without an answer, or None.
        """
        # Answers overtake each other, because refusals need no grid: one that is acknowledged says nothing of others.
        unsettled = [first for _, first, _ in self.unseen]
        if oldest_pending is not None:
            unsettled.append(oldest_pending)
        return RequestNumber(min(self.settled, min(unsettled) - 1)) if unsettled else self.settled

    def refuse(self) -> None:
        """The last reply refused a request that can be asked again."""
        if self.unseen:
            self.refused = self.unseen[-1][0]

    def forget(self) -> None:
        """Numbering has begun anew: the packet ids of earlier answers mean nothing any more."""
        self.unseen.clear()
        self.refused = 0
