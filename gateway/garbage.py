"""How often Python looks for cycles of garbage: seldom, because a node makes few and its sessions are looked through.

A node frees nearly everything by counting references. The collector of cycles finds next to nothing, and yet it takes
its share: with Python's defaults it looks through all young objects after every 700 new ones, and a storm of returning
clients makes some hundred objects per session that stay. Measured, a quarter of a storm's time went there.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG: Final = 100_000
"""New objects before the young ones are looked through: a pause of some milliseconds at most, once in some 1,000 new
sessions. Cycles that wait for it hold a few MiB."""

MIDDLE: Final = 20
"""Looks at the young before the middle-aged are looked through."""

OLD: Final = 50
"""Looks at the middle-aged before all objects are, and only if a quarter more have become old since: with 10,000
sessions that takes some tenths of a second, so it must be a rare thing."""


def collect_seldom() -> None:
    """Set the collector of this process, whose modules are imported and whose servers are started, for a long service.

    What exists now stays to the end and is not looked at again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
