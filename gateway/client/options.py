"""What ``connect`` can be told, in one value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isnan
from ssl import SSLContext
from typing import Final

import gateway
from gateway.client.credential_source import CredentialsSource
from gateway.core.client.options import ClientOptions

CLOSE_TIMEOUT: Final = 5.0
"""Seconds ``close`` waits until a node has confirmed that the session is ended."""

CLIENT_NAME: Final = f"python/{gateway.__version__}"
"""How this client introduces itself; the fixed property ``$client``."""

LONGEST_WINDOW: Final = 31 * 24 * 3600.0
"""Seconds that are asked for where a session shall survive for ever; no node grants as much (protocol 4.1)."""


FOLLOW_VARIABLE: Final = "GATEWAY_FOLLOW_MASTER"
"""Says whether sessions follow the master, where the application does not."""


def follows_master() -> bool:
    """Tell what the environment says of following the master."""
    return os.environ.get(FOLLOW_VARIABLE, "").strip().lower() in {"1", "true", "yes", "on"}


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
class Options(ClientOptions):
    """The arguments of ``connect``, checked: what the machine goes by, and what only this shell needs.

    Attributes:
        client: see ``ClientOptions``.
        credentials: makes fresh proofs in the place of one for good, or None.
        request_timeout: seconds that a request may take if its caller gives no time, or None for no limit.
        ssl: for ``wss`` URLs; None for the system's trust store.
        headers: to send with the HTTP upgrade, such as ``Origin``; may be secret, so not part of a representation.
    """

    client: str = CLIENT_NAME
    credentials: CredentialsSource | None = field(default=None, repr=False)
    request_timeout: float | None = None
    ssl: SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
