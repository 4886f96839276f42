"""What was told of links that do not come up: each once, not in a loop."""

from __future__ import annotations

from typing import Final

from gateway.catalogue import log_events as events
from gateway.catalogue.refusals import LinkRefusal
from gateway.ports import EventLog

MOST_TOLD: Final = 1024
"""Peers and reasons that are remembered; those told first are forgotten first, and told again."""


class Told:
    """Tells once of each peer and reason, until a link with that peer was up.

    Args:
        log: where it is told.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._told: dict[tuple[str, str], None] = {}

    def refused(self, peer: str, reason: LinkRefusal, detail: str) -> None:
        """Tell that a connection to this node was refused.

        Args:
            peer: the node that it claimed to be, or its address.
            reason: why.
            detail: more of it.
        """
        if self._is_news(peer, reason.value):
            self._log.emit(events.LINK_REFUSED, peer=peer, reason=reason.value, detail=detail)

    def failed(self, node: str, address: str, error: str) -> None:
        """Tell that a node could not be dialled, or refused."""
        if self._is_news(node, f"{address} {error}"):
            self._log.emit(events.LINK_FAILED, peer=node, address=address, error=error)

    def clear(self, peer: str) -> None:
        """A link with this peer is up: what happens from now on is news."""
        self._told = {key: None for key in self._told if key[0] != peer}

    def _is_news(self, peer: str, what: str) -> bool:
        if (peer, what) in self._told:
            return False
        self._told[peer, what] = None
        if len(self._told) > MOST_TOLD:
            del self._told[next(iter(self._told))]
        return True
