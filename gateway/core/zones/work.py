"""What messages of zone links cost beside their bytes, in seconds of CPU that are estimated by constants (P20).

A byte of JSON may be a piece of a long text, or a list of its own; and a message of three bytes may ask for everything.
"""

from __future__ import annotations

from typing import Final

from gateway.core.zones.interest import InterestChange
from gateway.core.zones.messages import json_of
from gateway.core.zones.protocol import Gap, InterestAll, Members, ZoneMessage

ITEM_WORK: Final = 60e-9
"""Of an item of JSON: a list, an object, a member of one."""

SELECTOR_WORK: Final = 30e-6
"""Of a selector that is told, read and put where topics find it."""

MEMBER_WORK: Final = 100e-6
"""Of a member that is told and checked; then the grid is told."""

GAP_WORK: Final = 1e-3
"""Of a gap, which is logged. Honest ones are rare: one for each topic partition at worst."""

_PUNCTUATION: Final = b"[{,:"


def json_work(text: bytes) -> float:
    """Tell how long it takes to parse JSON text, at worst, in seconds: each item has a sign in front or behind."""
    return ITEM_WORK * (len(text) - len(text.translate(None, _PUNCTUATION)))


def message_work(data: bytes, message: ZoneMessage) -> float:
    """Tell how long it takes to read a message and to do what it says, at worst, in seconds; without values of events.

    Args:
        data: the message in bytes.
        message: what it was read as.
    """
    work = json_work(json_of(data))
    match message:
        case InterestAll():
            work += SELECTOR_WORK * len(message.selectors)
        case InterestChange():
            work += SELECTOR_WORK * (len(message.added) + len(message.dropped))
        case Members():
            work += MEMBER_WORK * len(message.members)
        case Gap():
            work += GAP_WORK
    return work
