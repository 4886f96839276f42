"""The words and numbers of the fold, each with its reason."""

from __future__ import annotations

from typing import Final

from gateway.core.journal import events
from gateway.core.wire import codes

OPENED: Final = events.SESSION_OPENED.name
RESUMED: Final = events.SESSION_RESUMED.name
DISCONNECTED: Final = events.SESSION_DISCONNECTED.name
ORPHANED: Final = events.SESSION_ORPHANED.name
FENCED: Final = events.SESSION_FENCED.name
SLOW_CLOSED: Final = events.SESSION_SLOW_CLOSED.name
CLOSED: Final = events.SESSION_CLOSED.name
EXPIRED: Final = events.SESSION_EXPIRED.name
REFUSED: Final = events.SESSION_REFUSED.name

FACT_TYPES: Final = (OPENED, RESUMED, DISCONNECTED, ORPHANED, FENCED, SLOW_CLOSED, CLOSED, EXPIRED, REFUSED)
"""The events of which rows are made. Changes of properties and selections say nothing of where a session was; there can
be many, and they are left in bronze. The order is part of the state that a stream keeps: new ones go to the end."""

PUT_OFF: Final = tuple(sorted(code.value for code, spec in codes.ERRORS.items() if spec.retryable))
"""Reasons of refusals after which the same resume may succeed: they delay a comeback, and decide nothing."""

MICROSECONDS: Final = 1000
"""In a millisecond. Events are told in microseconds, lengths in milliseconds."""

LAST_MOMENT: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999, which everything that reads tables can still hold. A clock that is further
astray is taken for that, and one before 1970 for 1970."""


LONGEST_WINDOW_MS: Final = 7 * 86_400_000
"""What no window is longer than (``window_maximum`` of a gateway cannot be set higher). A session of which nobody knows
how long it is kept, because its opening is missing, is given so long."""

LONGEST_AWAY_MS: Final = LONGEST_WINDOW_MS
"""What a client says it was away is believed up to the longest window: longer ago it had no session to come back to."""

CREATED: Final = codes.Outcome.CREATED.value
"""The rung of an interval that began with the session."""

CONNECTED: Final = "connected"
AWAY: Final = "away"
ENDED: Final = "ended"

CLOSED_END: Final = "closed"
EXPIRED_END: Final = "expired"

BY_CLIENT: Final = "client"
BY_NODE: Final = "node"
BY_SURVIVORS: Final = "survivors"

NODE_DIED: Final = "node_died"
"""Cause of a connection's end when its node could not tell one."""

CONNECTION_LOST: Final = "connection_lost"
SLOW: Final = codes.SLOW_CONSUMER.name
CUT_OFF: Final = codes.FENCED.name
PRESUMED: Final = "presumed"
