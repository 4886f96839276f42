"""What a client is told before it connects, and the times it goes by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.core.wire.exchange_packets import QUESTIONS
from gateway.core.wire.packets import (
    REPLAY,
)
from gateway.core.wire.queue_packets import (
    QUEUES,
)
from gateway.core.wire.topology_packets import FOLLOW, TOPOLOGY

CONNECT_TIMEOUT: Final = 10.0
"""Seconds ``connect`` tries to open a session: two attempts that hang, or many that are refused."""

ATTEMPT_TIMEOUT: Final = 5.0
"""Seconds for one attempt to reach a node, up to the end of the HTTP upgrade; the next attempt may find another."""

WELCOME_TIMEOUT: Final = 5.0
"""Seconds to wait for the welcome after that; a node that claims a session waits for one round trip to the grid."""

LEAST_ATTEMPT: Final = 0.25
"""Seconds that an attempt has even if it begins at the very end of the window: less is no attempt on a real network."""

FETCH_TIMEOUT: Final = 10.0
"""Seconds that the application may take to come by a fresh secret: a round trip to a slow identity provider."""

LEAVE_TIMEOUT: Final = 2.0
"""Seconds to wait for the answers to what was asked, before the client leaves a node that asked it to go away."""

SUPPORTS: Final = frozenset({"handed_over", "mirrored", REPLAY, QUEUES, QUESTIONS})
"""What of later releases this client understands (protocol 4.1.1): outcomes, as it goes by their numbering alone, the
replay of what it missed, as it holds positions, messages of queues, which come to those that consume, and questions,
which come to those that handle them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """What one session is opened and kept with.

    Attributes:
        urls: where to connect, tried in turn; as ``urls.check_urls`` returned them.
        principal: who the client says it is; empty if the secret tells.
        secret: its proof, or None; never part of a representation.
        renewable: whether the application makes fresh proofs in the place of one for good.
        properties: user-defined properties to start with.
        client: how the client introduces itself; the fixed property ``$client``.
        window: seconds without a connection the session shall survive, or None for the node's default.
        connect_timeout: seconds within which the session must be opened.
        attempt_timeout: seconds for one attempt to reach a node.
        welcome_timeout: seconds to wait for its welcome.
        ack_packets: packets received after which an acknowledgement is sent alone, at the latest (protocol 5.3.2); None
            for the client's own number.
        follow_master: whether to be served by the master of the cluster (protocol 15.4).
        discover: whether the URLs that the cluster lists are used beside those that were given (protocol 15).
    """

    urls: tuple[str, ...]
    principal: str
    secret: str | None = field(default=None, repr=False)
    renewable: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    client: str
    window: float | None = None
    connect_timeout: float = CONNECT_TIMEOUT
    attempt_timeout: float = ATTEMPT_TIMEOUT
    welcome_timeout: float = WELCOME_TIMEOUT
    ack_packets: int | None = None
    discover: bool = True
    follow_master: bool = False

    @property
    def supports(self) -> frozenset[str]:
        """What of later releases is asked for."""
        asked = {TOPOLOGY: self.discover, FOLLOW: self.follow_master}
        return SUPPORTS | {word for word, is_asked in asked.items() if is_asked}
