"""How a job that goes on is told to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def until_signalled() -> Iterator[threading.Event]:
    """Turn SIGTERM and Ctrl-C into a wish to end, so that the batch in hand is finished."""
    stopping = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopping
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
