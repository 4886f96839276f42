"""Answering requests with a no; whoever answers sees to it that the session is flushed."""

from __future__ import annotations

from typing import Final

from gateway.app.session.session import Session
from gateway.core.types import RequestNumber
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import Reply

RETRY_AFTER: Final = 0.5
"""Seconds after which a client may repeat a request that was refused because the grid is away: about the time in which
a restarted Redis is adopted again."""


def decline(session: Session, number: RequestNumber, refusal: RequestRefused) -> None:
    """Refuse a request for good."""
    session.reply(Reply(request=number, error=refusal.code, message=str(refusal)))


def decline_for_now(session: Session, number: RequestNumber, why: str) -> None:
    """Refuse a request for which certainly nothing has been done, so that it can be asked again as a new one."""
    session.reply(
        Reply(
            request=number,
            error=ErrorCode.GRID_UNAVAILABLE,
            message=f"{why}; nothing was done, ask again",
            retry_after=RETRY_AFTER,
        )
    )
    session.refused()


def number_used(number: RequestNumber) -> RequestRefused:
    """Make the refusal of a request whose number the session has used before (protocol 5.2.1.1)."""
    return RequestRefused(
        f"request number {number} is not above those that the session has used before, and the request is not "
        "'resubmitted'; nothing was done"
    )
