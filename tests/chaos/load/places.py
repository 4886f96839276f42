"""How far a witness has come in each topic partition, as protocol.md asks (10.6). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MOST_UNFINISHED: Final = 16
"""Subscribes without their values that a resume may name; of more, a server takes none."""


def _order(event: str) -> tuple[int, ...]:
    """Read where an event is among those of its partition (6.4)."""
    return tuple(int(part) for part in event.split("-")[1:])


class Places:
    """Positions, and subscribes whose values have not all come."""

    def __init__(self) -> None:
        self._positions: dict[str, str] = {}
        self._unfinished: dict[int, str] = {}

    def update(self, packet: Mapping[str, Any]) -> None:
        """Take an update in: one without ``snapshot`` and ``folded`` comes in the order of events (10.6.2)."""
        event: str = packet["event"]
        partition = event.partition("-")[0]
        before = self._positions.get(partition)
        if before is None or packet.get("snapshot") or "folded" in packet:
            return
        self._positions[partition] = max(before, event, key=_order)

    def subscribed(self, request: int, selector: str) -> None:
        """A subscribe has its reply, and not yet its values."""
        self._unfinished[request] = selector

    def notice(self, packet: Mapping[str, Any]) -> None:
        """Take a notice in: some say where the client is, or that nobody knows."""
        if packet["code"] == "snapshots_complete":
            self._positions |= packet["positions"]
            self._unfinished.pop(packet.get("request", 0), None)
        elif packet["code"] == "values_reread":
            for partition in packet.get("partitions", list(self._positions)):
                self._positions.pop(str(partition), None)

    def named(self, unanswered: Mapping[int, str]) -> dict[str, Any]:
        """Make the fields of a resume; none if too much is under way.

        Args:
            unanswered: selectors of subscribes without a reply, by request.
        """
        unfinished = {**self._unfinished, **unanswered}
        if not self._positions or len(unfinished) > MOST_UNFINISHED:
            return {}
        return {
            "positions": dict(self._positions),
            "unfinished": {str(request): selector for request, selector in unfinished.items()},
        }

    def restarted(self, replayed: object) -> None:
        """Numbering begins anew (10.6.4): positions stay only as far as everything follows."""
        if replayed is True:
            return
        if isinstance(replayed, Mapping):
            for partition in replayed:
                self._positions.pop(partition, None)
        else:
            self._positions.clear()
            self._unfinished.clear()
