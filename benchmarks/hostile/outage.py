"""When Redis was unreachable on purpose, and what of a time that something took is left without that."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from gateway.catalogue.log_events import GRID_BACK

WRITTEN_AFTER: Final = 2.0
"""Seconds until Redis has written to its file, at the latest, what it has acknowledged: by ``appendfsync everysec`` it
puts that off while the disk is busy. If it is killed before, it comes back without."""


@dataclass(frozen=True)
class Outage:
    """Redis was unreachable. All times are seconds of the monotonic clock.

    It ends when the node has Redis again. The node tries to reconnect after a random time of up to a second, which has
    nothing to do with what clients do; counted with the latencies, it would let the dice decide whether a row holds.
    How long the node needs is judged by itself (``verdict.judge``).

    Attributes:
        begin: when it was killed.
        answered: when it answered again.
        back: when the node had it again; None if it had not when this was looked at.
    """

    begin: float
    answered: float
    back: float | None

    @property
    def end(self) -> float:
        """Until when what takes long is not the node's matter."""
        return self.answered if self.back is None else self.back

    @property
    def until_back(self) -> float | None:
        """Seconds from Redis's return to the node's; None if it did not return."""
        return None if self.back is None else max(0.0, self.back - self.answered)

    def without(self, began: float, took: float) -> float:
        """Tell how much of the *took* seconds from *began* on was not in the outage."""
        return took - max(0.0, min(began + took, self.end) - max(began, self.begin))

    def may_have_lost(self, due: float, told: float) -> bool:
        """Tell whether an update that was due then may be one of those that such an end of Redis costs.

        Redis may have come back without it, though it had acknowledged it. Or it has several that it had not told the
        node of: then subscribers are sent the newest value in place of them. What is published between the node's
        return to Redis and that value is one of these.

        Args:
            due: when it was, by the monotonic clock.
            told: when the first subscriber was told that it may have missed something.
        """
        return self.begin - WRITTEN_AFTER <= due < max(self.end, told)


def came_back(log: Path, after: float) -> float | None:
    """Tell when the node whose log that is had the grid again for the first time after a moment.

    Args:
        log: of the node.
        after: seconds of the monotonic clock.

    Returns:
        Seconds of the monotonic clock; None if it has not come back since.
    """
    offset = time.time() - time.monotonic()
    for line in log.read_text(errors="replace").splitlines():
        if GRID_BACK.name in line:
            told = json.loads(line)
            moment = datetime.fromisoformat(told["time"]).timestamp() - offset
            if told["event"] == GRID_BACK.name and moment >= after:
                return moment
    return None
