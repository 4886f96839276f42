"""What the node that delivers for a hook says of it in the grid, for administrators and for who delivers next."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any, Final

import orjson

LONGEST_ERROR: Final = 300
"""Characters of an error that are kept."""

FINGERPRINT_CHARACTERS: Final = 16
"""Of the hash of an address: enough to tell that it was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookStatus:
    """How a hook is. Times are in seconds since 1970 by the clock of the node.

    Attributes:
        node: name of the node that delivers, or did last.
        url: where it posts, without path and query; empty if nobody said.
        events: types of events that the hook gets, by name.
        delivered: when events were delivered last; None if they never were.
        failures: attempts that have failed since then, in a row.
        error: why the last attempt that failed did so, also if others were good since; empty if none ever failed.
        failed: when that was; None if none ever failed.
        failing: since when attempts fail; None if the last attempt was good.
        attempt: when the next attempt is due; None if the last one was good, or none is.
        suspended: fingerprint of the address that answered 410; empty if none did.
    """

    node: str = ""
    url: str = ""
    events: tuple[str, ...] = ()
    delivered: float | None = None
    failures: int = 0
    error: str = ""
    failed: float | None = None
    failing: float | None = None
    attempt: float | None = None
    suspended: str = ""

    def well(self) -> HookStatus:
        """Tell how it is once nothing fails any more; why the last attempt failed that did is still told."""
        return replace(self, failures=0, failing=None, attempt=None, suspended="")

    def encode(self) -> bytes:
        """Write it as JSON."""
        return orjson.dumps(asdict(self) | {"error": self.error[:LONGEST_ERROR]})


def read_status(text: bytes) -> HookStatus:
    """Read what ``encode`` wrote; what cannot be read is as if it had not been said."""
    try:
        found: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return HookStatus()
    if not isinstance(found, dict):
        return HookStatus()
    kinds: dict[str, tuple[type, ...]] = {
        "node": (str,),
        "url": (str,),
        "error": (str,),
        "suspended": (str,),
        "failures": (int,),
        "delivered": (int, float),
        "failed": (int, float),
        "failing": (int, float),
        "attempt": (int, float),
    }
    fit: dict[str, Any] = {
        name: value
        for name, value in found.items()
        if name in kinds and not isinstance(value, bool) and isinstance(value, kinds[name])
    }
    events = found.get("events")
    if isinstance(events, list) and all(isinstance(each, str) for each in events):
        fit["events"] = tuple(events)
    return HookStatus(**fit)


def fingerprint(url: str) -> str:
    """Name an address without showing it."""
    return sha256(url.encode()).hexdigest()[:FINGERPRINT_CHARACTERS]
