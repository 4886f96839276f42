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

LONGEST_STEP: Final = 3600.0
"""Seconds after which the time of day is looked at again at the latest: it may have been set meanwhile."""


class Expiry:
    """Watches the ends of credentials.

    Args:
        context: of the node.
    """

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._notice = context.parameters.credential_notice

    def arm(self, session: Session) -> None:
        """Begin anew: the session has a new connection, or fresh credentials."""
        self._look_again(session, session.watch_credentials(self._clock.wall(), notice=self._notice))

    def is_over(self, session: Session) -> bool:
        """Do what is due for a session, and tell whether its credentials have ended, so that it has to be closed."""
        wait = session.look_at_credentials(self._clock.wall())
        if wait is None:
            return True
        self._look_again(session, wait)
        return False

    def _look_again(self, session: Session, wait: float) -> None:
        session.credential_due = inf if wait == inf else self._clock.monotonic() + min(wait, LONGEST_STEP)
