"""Keeps the service manager informed, from within the event loop: a loop that stands still says nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.ports import ServiceManager

REPORT_INTERVAL: Final = 5.0
"""Seconds between two looks at the status: what people see need not be newer."""

WATCHDOG_SHARE: Final = 3
"""Signs of life within the time after which the node counts as hung: two may come late."""


async def report(manager: ServiceManager, status: Callable[[], str]) -> None:
    """Report for ever.

    Args:
        manager: who is told.
        status: how the node is, in one line.
    """
    interval = REPORT_INTERVAL if manager.watchdog is None else min(REPORT_INTERVAL, manager.watchdog / WATCHDOG_SHARE)
    told = ""
    while True:
        if manager.watchdog is not None:
            manager.alive()
        text = status()
        if text != told:
            told = text
            manager.status(text)
        await asyncio.sleep(interval)
