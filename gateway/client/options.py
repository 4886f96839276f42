"""What ``connect`` can be told, in one value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from math import inf, isnan
from ssl import SSLContext
from typing import Final

import gateway

CONNECT_TIMEOUT: Final = 10.0
"""Seconds ``connect`` tries to open a session: two attempts that hang, or many that are refused."""

ATTEMPT_TIMEOUT: Final = 5.0
"""Seconds for one attempt to reach a node, up to the end of the HTTP upgrade; the next attempt may find another."""

WELCOME_TIMEOUT: Final = 5.0
"""Seconds to wait for the welcome after that; a node that claims a session waits for one round trip to the grid."""

CLOSE_TIMEOUT: Final = 5.0
"""Seconds ``close`` waits until a node has confirmed that the session is ended."""

LEAVE_TIMEOUT: Final = 2.0
"""Seconds to wait for the answers to what was asked, before the client leaves a node that asked it to go away."""

SUPPORTS: Final = frozenset({"handed_over", "mirrored"})
"""What of later releases this client understands (protocol 4.1.1): outcomes, as it goes by their numbering alone."""

CLIENT_NAME: Final = f"python/{gateway.__version__}"
"""How this client introduces itself; the fixed property ``$client``."""


LONGEST_WINDOW: Final = 31 * 24 * 3600.0
"""Seconds that are asked for where a session shall survive for ever; no node grants as much (protocol 4.1)."""


def time_limit(name: str, seconds: float | None) -> float | None:
    """Check a time limit that an application gives.

    Args:
        name: of the argument.
        seconds: None and infinity both say that there is none.

    Returns:
        The limit; None for none, as event loops have no timers for infinity.

    Raises:
        ValueError: it is no number of seconds.
    """
    if seconds is None or seconds == inf:
        return None
    # Callers without a type checker give anything.
    if not isinstance(seconds, int | float) or isnan(seconds):  # type: ignore[redundant-expr]
        raise ValueError(f"{name} is a number of seconds, and not {seconds!r}")
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The arguments of ``connect``, checked.

    Attributes:
        urls: where to connect, tried in turn.
        principal: who the client says it is.
        secret: its proof, or None; never part of a representation.
        credentials: makes fresh proofs in the place of one for good, or None.
        properties: user-defined properties to start with.
        window: seconds without a connection the session shall survive, or None for the node's default.
        connect_timeout: seconds within which the session must be opened.
        request_timeout: seconds that a request may take if its caller gives no time, or None for no limit.
        attempt_timeout: seconds for one attempt to reach a node.
        welcome_timeout: seconds to wait for its welcome.
        ssl: for ``wss`` URLs; None for the system's trust store.
        headers: to send with the HTTP upgrade, such as ``Origin``; may be secret, so not part of a representation.
    """

    urls: tuple[str, ...]
    principal: str
    secret: str | None = field(default=None, repr=False)
    credentials: Callable[[], Awaitable[str]] | None = field(default=None, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict)
    window: float | None = None
    connect_timeout: float = CONNECT_TIMEOUT
    request_timeout: float | None = None
    attempt_timeout: float = ATTEMPT_TIMEOUT
    welcome_timeout: float = WELCOME_TIMEOUT
    ssl: SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
