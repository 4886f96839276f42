"""Tells the journal about once a minute what has passed, updates, messages, and events of other clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.app.context import Context

INTERVAL: Final = 60.0
"""Seconds between two records of traffic."""


async def measure(context: Context, *, connections: Callable[[], int], sessions: Callable[[], int]) -> None:
    """Tell of the traffic for ever.

    Args:
        context: of the node.
        connections: tells how many are open, consoles left out.
        sessions: tells how many are held, consoles left out.
    """
    clock, journal = context.clock, context.journal
    while journal.traffic is not None and journal.queues is not None and journal.zones is not None:
        began, before = clock.monotonic(), clock.cpu()
        await asyncio.sleep(INTERVAL)
        # Not the time of day at which it began: the clock may have been set since, back even to before that.
        since = clock.wall() - (clock.monotonic() - began)
        everything, roots = journal.traffic.take()
        journal.measured(
            since,
            everything,
            roots,
            connections=connections(),
            sessions=sessions(),
            cpu=clock.cpu() - before,
        )
        journal.measured_queues(since, journal.queues.take())
        journal.measured_links(since, journal.zones.take())
