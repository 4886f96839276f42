"""A redis-server whose clock can be set while it runs; the clock of nobody else moves."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from tests.support import preloaded
from tests.support.redis_server import RedisServer

_SETTING_IT: Final = "the clock of Redis can be set"


def unavailable() -> str:
    """Tell why no clock can be set on this machine; empty if it can be."""
    return preloaded.unavailable(_SETTING_IT)


class Clock:
    """A time of day of its own, for processes that are started with its environment.

    Attributes:
        environment: more variables for them.
    """

    def __init__(self) -> None:
        library = preloaded.library("set_clock", _SETTING_IT)
        handle, path = tempfile.mkstemp(dir=preloaded.folder())
        os.close(handle)
        self._ahead = Path(path)
        self.environment = {"LD_PRELOAD": library, "CLOCK_AHEAD": path}
        self.set(0)

    def set(self, seconds: int) -> None:
        """Set it so many seconds ahead of the right time; behind it if they are negative."""
        new = self._ahead.with_suffix(".new")
        new.write_text(f"{seconds}\n")
        new.replace(self._ahead)  # at once, so that nobody reads half of it


class ClockedRedis(RedisServer):
    """A private redis-server with a clock of its own."""

    def __init__(self) -> None:
        self._clock = Clock()
        super().__init__(environment=self._clock.environment)

    def set_clock(self, seconds: int) -> None:
        """Set its clock so many seconds ahead of the right time; behind it if they are negative."""
        self._clock.set(seconds)
