"""What a stream of events reads by: a session of this node alone, of which no client and no grid knows."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from gateway.app.session.session import Session, StoredUnder
from gateway.core.stream.machine import SessionMachine
from gateway.ports import SessionRecord


class StreamEnd(StrEnum):
    """Why a stream ends; a reader is told of all but the first two."""

    LEFT = "left"
    """Its reader has gone, or the connection is lost."""
    SLOW = "slow"
    """Its reader takes less than comes, even with updates folded (P9)."""
    DRAINING = "draining"
    """The node is to be stopped; another one goes on."""
    FORBIDDEN = "forbidden"
    """The policy does not allow all of it any more."""
    REVOKED = "revoked"
    """The principal, or its credential, is refused from now on."""
    CREDENTIALS_EXPIRED = "credentials_expired"
    """The credentials have ended."""
    INTERNAL = "internal"
    """The node has met a bug."""


class StreamSession(Session):
    """A session that only reads, for as long as its connection lasts.

    It is never in ``Sessions``, is written nowhere, and asks for nothing. What delivers to sessions delivers to it.

    Args:
        record: as it would be in the grid.
        machine: its packets.
        stored_under: as of a session.
        stop: ends it.
    """

    __slots__ = ("stop",)

    def __init__(
        self,
        record: SessionRecord,
        machine: SessionMachine,
        *,
        stored_under: StoredUnder,
        stop: Callable[[StreamEnd], None],
    ) -> None:
        super().__init__(record, machine, stored_under=stored_under)
        self.stop = stop
