"""What tests of the account write histories with, and read its verdict by."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from tests.chaos.account.publishes import Entry, Snapshot
from tests.chaos.account.violation import Violation

SECOND: Final = 1 << 32
"""Added to versions of the second generation."""


def promises(violations: Iterable[Violation]) -> list[str]:
    """List the promises that were broken."""
    return [violation.promise for violation in violations]


def log(*entries: tuple[int, int], generation: int = 1, at: float = 100.0) -> Snapshot:
    """What Redis held: value and version; versions that are not those of the publishes are of another one."""
    found = [
        Entry(f"e{value}" if version == value else f"e{value}-{version}", version, value) for value, version in entries
    ]
    return Snapshot(at, generation, {"t/1": found})


def line(event: str, at: float, level: str = "error", **fields: object) -> str:
    """Return a line of a node's log."""
    time = datetime.fromtimestamp(at, UTC).isoformat()
    return json.dumps({"time": time, "level": level, "event": event, **fields})
