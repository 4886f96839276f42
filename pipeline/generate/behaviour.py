"""How clients of a synthetic journal behave: three kinds, their lives and losses, and how soon somebody notices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipeline.generate.units import DAY, HOUR, MINUTE, SECOND


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One kind of client. Times are means in microseconds where nothing else is said.

    Attributes:
        name: of the client, as it calls itself.
        share: of all sessions that are opened.
        window_ms: the window that it asks for, in milliseconds.
        life: median length of its sessions; the lengths are log-normal, so that a few live for very long.
        spread: of the logarithm of these lengths.
        change: between two changes of selections or properties.
        loss: between two losses of the connection that nobody else caused.
        slow: between two times that it reads too slowly.
        gone: share of lost connections after which it never comes back: a closed tab, an empty battery.
        long: share of them after which it is away for long: a tunnel, a lift, a lid that was closed.
        bye: share of sessions that it ends on purpose; the others are left alone until their window ends.
    """

    name: str
    share: float
    window_ms: int
    life: int
    spread: float
    change: int
    loss: int
    slow: int
    gone: float
    long: float
    bye: float


BEHAVIOURS: Final = (
    Behaviour(
        "browser", 0.60, 60_000, 8 * MINUTE, 1.4, 4 * MINUTE, 25 * MINUTE, 40 * HOUR, gone=0.20, long=0.15, bye=0.5
    ),
    Behaviour(
        "mobile", 0.28, 300_000, 14 * MINUTE, 1.2, 6 * MINUTE, 4 * MINUTE, 15 * HOUR, gone=0.10, long=0.35, bye=0.3
    ),
    Behaviour(
        "service", 0.12, 3_600_000, 90 * MINUTE, 1.8, 60 * MINUTE, 8 * HOUR, 30 * HOUR, gone=0.02, long=0.05, bye=0.9
    ),
)
"""People at desks, people on the move, programs."""

EVENTS_PER_SESSION: Final = 10.5
"""About what a session of this mixture leaves in the journal, with its part of what happens to nodes (measured). It
only decides how long the journal gets, which ends when it has the events that were asked for."""

QUICK_RETURN: Final = 400 * 1_000
"""Median time until a client is back that lost its connection and nothing else: detection, backoff, handshake."""

QUICK_SPREAD: Final = 0.9
"""Of the logarithm of that time."""

LONG_RETURN: Final = 8 * SECOND
"""The shortest of the long absences."""

LONG_TAIL: Final = 0.9
"""Exponent of their Pareto distribution: below 1, so that some outlast every window."""

PROPERTY_CHANGES: Final = 0.15
"""Share of the changes that are of properties; the others are of selections."""

STICKY: Final = 0.985
"""Share of comebacks that reach the node they ask for, if it takes clients."""

GAP: Final = 0.004
"""Share of these whose gap is no longer in a resend buffer."""

PACKETS_PER_SECOND: Final = 4.0
"""Session packets a client misses while it is away, which are resent if the resend buffer still holds them."""

BUFFER_PACKETS: Final = 1_000
"""Packets a resend buffer holds; later updates are conflated."""

REPLAYED_WITHIN: Final = 600 * SECOND
"""How far back a partition's stream reaches at these rates: who comes back sooner to another node misses nothing."""

DUPLICATES: Final = 0.03
"""Publishes that were in the grid already, for each comeback."""

PRINCIPALS_PER_SESSION: Final = 0.3
"""Different principals for each session that is opened; the same people come again."""

BAD_TOKENS_PER_MINUTE: Final = 0.2
"""Resumes with tokens that are not genuine, for each node."""

DIURNAL: Final = 0.6
"""How far arrivals swing around their mean over a day."""

QUIETEST_HOUR: Final = 4 * HOUR
"""When they are fewest, after midnight UTC."""

PING_SILENCE: Final = 45 * SECOND
"""After which a node gives a silent client up, which has noticed long before."""

SILENT: Final = 0.15
"""Share of lost connections of which the node learns only by silence."""

NOTICED_HANG: Final = (5 * SECOND, 20 * SECOND)
"""When clients of a node that hangs go elsewhere."""

NOTICED_DEATH: Final = 3 * SECOND
"""Within which nearly all clients of a node that died notice and are back."""

NOTICED_CUT: Final = 5 * SECOND
"""Within which clients come back whom a proxy cut all at once; they spread themselves."""

REAPER: Final = SECOND
"""After the end of a window at most, the session is ended."""

LATEST_REFUSAL: Final = DAY
"""After which nobody comes back any more, not even to be refused."""

TRY_LATER: Final = 0.08
"""Share of the clients of a node that went which are told to come a little later."""

REVOKED: Final = 0.01
"""Share of ends on purpose that somebody else decided."""

UNAWARE: Final = 0.8
"""Share of those who lost nothing but time while the grid was unreachable; the others' node does not hold them."""
