"""What a server may send to whom: all that is newer than this version only to who names it (protocol 4.1.1).

Before an outcome, a notice or a packet type that is not in ``THIS_VERSION`` is sent, ``understands`` is asked. What a
later release adds must not be put there: a client of this version was written without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.core.wire.codes import Outcome
from gateway.core.wire.exchange_packets import (
    QUESTIONS,
)
from gateway.core.wire.packets import (
    REPLAY,
)
from gateway.core.wire.queue_packets import (
    QUEUES,
)

THIS_VERSION: Final = frozenset(
    {
        # outcomes
        *("created", "reattached", "failed_over", "refused"),
        # notices
        *("grid_lost_writes", "slowed_down", "values_reread", "credentials_expiring", "administrator"),
        *("permissions_withdrawn", "withheld"),
        # types of packets
        *("welcome", "ack", "ping", "pong", "go-away", "error", "bye", "update", "reply", "notice"),
    }
)
"""What every client understands, or ignores without harm: the protocol page has it without a condition."""

WORDS: Final[Mapping[str, str]] = {
    "message": QUEUES,
    "question": QUESTIONS,
    "answered": QUESTIONS,
    "snapshots_complete": REPLAY,
    "unmirrored": Outcome.MIRRORED.value,
}
"""The words of ``supports`` by what they stand for, where they are not its own name: several things may share one."""


def understands(supports: frozenset[str], name: str) -> bool:
    """Tell whether a client may be sent something.

    Args:
        supports: the words of its hello or resume on this connection.
        name: of an outcome, a notice or a type of packets. What nobody has declared is its own word.
    """
    return name in THIS_VERSION or WORDS.get(name, name) in supports
