"""What publishers put into a value, so that every subscriber can tell order, loss, content and latency by itself.

```json
{"source": "w0-3f9a", "sequence": 17, "due": 1795249200.123456, "filler": "17·17·17·…"}
```

``due`` is when the publish was *scheduled*, not when it was made: a publisher that is held up measures how late its
values are, and does not spare the system under test the wait (no coordinated omission).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import orjson

from gateway.core.types import JsonValue

DEFAULT_BYTES: Final = 100
"""Bytes of one value: a price with its neighbours, and what the project's benchmarks use."""


_STARTED: Final = time.time() - time.monotonic()
"""What makes a wall clock of the monotonic one; fixed at the start, so that no correction of the clock disturbs."""


def wall_clock() -> float:
    """Return the time in seconds since 1970, which never goes back in this process.

    Machines that generate load together compare it, so they need their clocks set by NTP; processes of one machine
    need nothing.
    """
    return _STARTED + time.monotonic()


Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one publisher.

    Attributes:
        source: which run of which publisher: sequences of different sources have nothing to do with each other.
        sequence: counts the values of the source from 1, without holes.
        due: when it was scheduled, in seconds of ``wall_clock``.
        intact: whether the content is what the publisher wrote.
    """

    source: str
    sequence: int
    due: float
    intact: bool = True


def encode(sample: Sample, *, size: int = DEFAULT_BYTES) -> bytes:
    """Make the JSON text of a value.

    Args:
        sample: what it says.
        size: bytes it shall have; longer if that is too little.
    """
    body: dict[str, JsonValue] = {"source": sample.source, "sequence": sample.sequence, "due": round(sample.due, 6)}
    bare = len(orjson.dumps(body | {"filler": ""}))
    return orjson.dumps(body | {"filler": _filler(sample.sequence, size - bare)})


def decode(value: JsonValue) -> Sample | None:
    """Read a value; None if it is not one of ours."""
    match value:
        case {"source": str(source), "sequence": int(sequence), "due": float(due) | int(due), "filler": str(filler)}:
            return Sample(source, sequence, due, intact=filler == _filler(sequence, len(filler)))
        case _:
            return None


def _filler(sequence: int, length: int) -> str:
    """Make text that no other sequence number has."""
    unit = f"{sequence}."
    return (unit * (length // len(unit) + 1))[: max(0, length)]
