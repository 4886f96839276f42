"""How often Python looks for cycles of garbage: seldom, because a node makes few and its sessions are looked through.

A node frees nearly everything by counting references. The collector of cycles finds next to nothing, and yet it takes
its share: with Python's defaults it looks through all young objects after every 700 new ones, and a storm of returning
clients makes some hundred objects per session that stay. Measured, a quarter of a storm's time went there.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

YOUNG: Final = 5_000
"""New objects before the young ones are looked through, about those of sixty sessions that come in a storm: a pause of
one or two milliseconds. More would save nothing, since each object is young once: measured with 5,000, 20,000 and
100,000, it is 0.3 to 0.6 microseconds for each object that stays, some 40 for a session that fails over. A delivery
leaves nearly nothing that stays, and costs no more than 0.03. But the pauses would be longer, 11 and 37 ms as a rule,
and with 100,000 a node that took in a storm was seen to stand still for 80."""

MIDDLE: Final = 400
"""Looks at the young before the middle-aged are looked through: some 25,000 more sessions. It is a long pause, and what
it may find are cycles that lived for longer than a look at the young takes to come."""

OLD: Final = 50
"""Looks at the middle-aged before all objects are, and only if a quarter more have become old since: with 10,000
sessions that takes some tenths of a second, so it must be a rare thing."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Have no cycles looked for until the end of the block."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def collect_seldom() -> None:
    """Set the collector of this process, whose modules are imported and whose servers are started, for a long service.

    What exists now stays to the end and is not looked at again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
