"""What is left at the end, and how loud it was meanwhile: keys, connections, logs (P7, P10, P20)."""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tests.chaos.account.violation import Violation

OF_SESSIONS: Final = (":session:", ":receipts:", ":owned", ":ids", ":deadlines", ":consuming:")
"""Parts of the names of keys that only sessions have."""

BUGS: Final = frozenset(
    {"background_task_failed", "connection_failed", "request_failed", "admin_failed", "library_failed"}
)
"""Events of a log that tell of a bug, whatever happened around it."""

LOUD: Final[Mapping[str, int]] = {"grid_unreachable": 12, "grid_back": 12, "grid_write_refused": 12, "lease_lost": 12}
"""Times that a node may log an event in ``LOUD_WINDOW``: a link that flaps does so about once a second."""

LOUD_WINDOW: Final = 10.0
"""Seconds."""

MOST_CONNECTIONS: Final = 40
"""Connections of one node to one Redis: some when all is well, and as many again whose end nobody has noticed."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key that was left.

    Attributes:
        name: of it.
        ttl: milliseconds until it ends; negative if it has no end.
    """

    name: str
    ttl: int


def judge_keys(at: float, keys: Iterable[Key], lives: Mapping[str, bool]) -> list[Violation]:
    """See that nothing of sessions is left without an end (P7).

    Args:
        at: when they were read: after every window had ended.
        keys: all that are there.
        lives: sessions of the run, and whether their end was confirmed.
    """
    left = [key for key in keys if any(part in key.name for part in OF_SESSIONS) and key.ttl < 0]
    violations = []
    for key in left:
        session = key.name.rpartition(":")[2]
        known = ", of a session whose end was confirmed" if lives.get(session) else ""
        violations.append(Violation("P7", at, key.name, f"is left in the grid and has no end{known}"))
    return violations


def judge_connections(at: float, server: str, connections: int, nodes: int) -> list[Violation]:
    """See that nodes do not hold ever more connections to a Redis (P10)."""
    if connections <= MOST_CONNECTIONS * nodes:
        return []
    return [Violation("P10", at, server, f"{connections} clients are connected, of {nodes} nodes")]


def judge_log(node: str, lines: Sequence[str], *, began: float) -> list[Violation]:
    """Look for bugs and for noise in the log of a node.

    Args:
        node: whose.
        lines: of the log.
        began: the beginning of the run, in seconds since 1970.
    """
    violations: list[Violation] = []
    recent: dict[str, deque[float]] = {}
    loudest: Counter[str] = Counter()
    bugs: dict[tuple[str, str], list[float]] = {}
    strange: list[str] = []
    for line in lines:
        try:
            entry = json.loads(line)
            name, level = entry["event"], entry["level"]
            at = datetime.fromisoformat(entry["time"]).timestamp() - began
        except (ValueError, KeyError, TypeError):
            strange.append(line)
            continue
        if name in BUGS or "exception" in entry:
            what = str(entry.get("error") or entry.get("message") or "")
            bugs.setdefault((name, f"{entry.get('task', '')} {what}".strip()), []).append(at)
        if level in {"warning", "error"}:
            times = recent.setdefault(name, deque())
            times.append(at)
            while times[0] < at - LOUD_WINDOW:
                times.popleft()
            if len(times) > loudest[name]:
                loudest[name] = len(times)
                if len(times) == LOUD.get(name, math.inf):
                    what = f"logs {name} {len(times)} times in {LOUD_WINDOW:g} s"
                    violations.append(Violation("P10", at, node, what))
    for (name, what), times_of_it in bugs.items():
        violations.append(Violation("bug", times_of_it[0], node, f"logged {name} {len(times_of_it)} times: {what}"))
    if strange:
        first = next((line for line in strange if "Error" in line or "Exception" in line), strange[0])
        violations.append(
            Violation("bug", 0.0, node, f"wrote {len(strange)} lines that are no events, such as: {first}")
        )
    return violations
