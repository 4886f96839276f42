"""The pages of a browser under faults, as a second part of a run: the suite of ``tests.browser`` with the same seed.

It has a cluster and faults of its own: what a browser does to a page (a reload, a frozen tab, the back/forward cache)
happens to no other client.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.browser.run import Outcome, run
from tests.chaos.deadlines import bounded
from tests.chaos.turns import Tell
from tests.support.browser import chromium_program

SETTLES: Final = 600.0
"""Seconds, on a quiet machine, beyond those that were asked for: every fault comes once, and after each of them the
pages must have settled, for which they have deadlines of their own."""


def require_browser() -> None:
    """See that pages can be run here.

    Raises:
        BrowserMissing: Chromium is not installed.
    """
    chromium_program()


async def strike_pages(folder: Path, *, seed: int, seconds: float, tell: Tell) -> Outcome:
    """Break pages, their network and their cluster at random, and judge what the pages saw.

    Args:
        folder: for data, logs, and pictures if something was violated.
        seed: decides order, victims and moments.
        seconds: for how long; every fault comes once at least.
        tell: takes lines that show how it goes on.

    Raises:
        Stuck: it did not end.
    """
    work = run(folder, seed=seed, seconds=seconds, report=lambda line: tell(f"  pages: {line}"))
    return await bounded(work, "breaking pages", seconds + SETTLES)
