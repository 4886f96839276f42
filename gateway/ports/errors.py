"""What can go wrong behind the grid's ports. See ``gateway.ports`` for the rules that hold for all."""

from __future__ import annotations

from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import GatewayError


class GridUnavailable(GatewayError):
    """The grid did not answer in time, the connection broke, or the grid has changed and is not yet adopted (P10)."""


class GridRefused(GridUnavailable):
    """The grid answers and refuses: it is out of memory, or a part of it is being moved and stays so.

    It is certain that nothing was done.
    """


class LeaseUnverified(GridUnavailable):
    """The node's lease may have expired (P3), so the step was not sent; it may be once the lease is verified.

    Not a sign that the grid is unreachable: a node that was suspended beyond its lease meets this when it wakes.
    """


class Fenced(GatewayError):
    """The grid refused a write: another node has claimed the session since (P3). The copy here must be dropped."""


class SessionGone(GatewayError):
    """The grid holds no such session: it was closed or its window ended.

    Attributes:
        reason: SESSION_UNKNOWN, SESSION_CLOSED, SESSION_EXPIRED or REVOKED, as far as the grid still knows.
    """

    def __init__(self, reason: ErrorCode) -> None:
        super().__init__(f"the grid holds no such session: {reason.value}")
        self.reason = reason


class LeaseLost(GatewayError):
    """The node's lease is not in the grid any more: others may have put its sessions on the clock."""
