"""Credentials that end while their session is connected (protocol 5.9).

```text
attached, refreshed ──▶ credential_notice before the end: told ──▶ the end: closed, to be resumed with fresh ones
          ▲                                                 │
          └───────────── fresh credentials ─────────────────┘
```

Credentials that live for less than that are told of when half of their time is over: told at once, a client would fetch
one after the other as fast as it can.

There is no timer of its own: each session's next step is one of the deadlines that ``Sessions`` waits for anyway. The
end is a time of day, so it is compared with that clock when the monotonic one says that it should have come.
"""

from __future__ import annotations

from math import inf
from typing import Final

from gateway.app.context import Context
from gateway.app.session.session import Session
from gateway.core.stream.runs import Outgoing
from gateway.core.wire import codec
from gateway.core.wire.packets import Notice, NoticeCode

LONGEST_STEP: Final = 3600.0
"""Seconds after which the time of day is looked at again at the latest: it may have been set meanwhile."""


class Expiry:
    """Watches the ends of credentials.

    Args:
        context: of the node.
    """

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._notice = context.policy.credential_notice

    def arm(self, session: Session) -> None:
        """Begin anew: the session has a new connection, or fresh credentials."""
        session.credential_told = False
        if session.credential_expires is not None:
            left = session.credential_expires - self._clock.wall()
            session.credential_notice = session.credential_expires - min(self._notice, max(0.0, left) / 2)
        session.credential_due = self._next(session)

    def is_over(self, session: Session) -> bool:
        """Do what is due for a session, and tell whether its credentials have ended, so that it has to be closed."""
        expires = session.credential_expires
        if expires is None:
            session.credential_due = inf
            return False
        now = self._clock.wall()
        left = expires - now
        if left <= 0:
            return True
        if not session.credential_told and session.credential_notice <= now:
            session.credential_told = True
            notice = Notice(
                NoticeCode.CREDENTIALS_EXPIRING,
                f"The session's credentials end in {left:.0f} s; show fresh ones, or the connection is closed then.",
            )
            session.machine.submit(Outgoing(None, codec.encode_notice(notice)))
        session.credential_due = self._next(session)
        return False

    def _next(self, session: Session) -> float:
        if session.credential_expires is None:
            return inf
        told = session.credential_told
        wait = (session.credential_expires if told else session.credential_notice) - self._clock.wall()
        return self._clock.monotonic() + min(max(0.0, wait), LONGEST_STEP)
