"""When to look at a session again of which nothing is heard, and for how long what is known of one is kept."""

from __future__ import annotations

from typing import Final, NamedTuple

from pipeline.sessions.rules import MICROSECONDS
from pipeline.sessions.state import SessionState
from pipeline.sessions.tell import Told

SETTLED_AFTER_MS: Final = 86_400_000
"""For how long what is known of a session is kept after it has ended, by the watermark, in milliseconds: a day. What is
told later than that, a node kept for a day."""

SILENT_AFTER_MS: Final = 90 * 86_400_000
"""For how long what is known of a connected session is kept of which nothing is heard, in milliseconds: longer than
nodes go without a deploy, which moves it. If all nodes and the grid vanish at once, nobody ever tells of its end, and
its state would stay for ever. What is told of it later, `pipeline backfill` brings in."""


class Timer(NamedTuple):
    """When to look at a session again though nothing is heard of it, and whether to forget it then.

    Attributes:
        at_ms: in milliseconds since 1970, by the watermark.
        forget: whether it has settled by then; else its row changes.
    """

    at_ms: int
    forget: bool


def timer_of(told: Told | None, state: SessionState, heard_until_ms: int) -> Timer:
    """Tell when to look again; always later than the watermark. So no state stays for ever.

    Args:
        told: what is told of the session.
        state: what is known of it; something is.
        heard_until_ms: the watermark.
    """
    if told is not None and told.due_ms is not None:
        return Timer(told.due_ms, forget=False)
    # Before the first record of a node is heard, the watermark is in 1970.
    last_ms = max(heard_until_ms, max(each.at for each in state) // MICROSECONDS)
    is_open = told is not None and told.ended_at is None
    return Timer(last_ms + (SILENT_AFTER_MS if is_open else SETTLED_AFTER_MS), forget=True)
