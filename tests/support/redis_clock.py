"""A redis-server whose clock can be set while it runs; the clock of nobody else moves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.support.redis_server import RedisServer

_SOURCE: Final = Path(__file__).with_name("set_clock.c")

_COMPILE_DEADLINE: Final = 60.0
"""Seconds for 40 lines of C on a busy machine."""


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="gateway-clock-")


def unavailable() -> str:
    """Tell why no clock can be set on this machine; empty if it can be."""
    if sys.platform != "linux":
        return "the clock of Redis can be set only on Linux"
    return "" if shutil.which("cc") else "the clock of Redis can be set only with a C compiler, and there is no cc"


@cache
def _library() -> str:
    """Compile what is preloaded: skips the test where there is no C compiler for Linux, but fails it under CI.

    Returns:
        Its path.
    """
    if why := unavailable():
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"{why}, and CI must not skip tests", pytrace=False)
        pytest.skip(why)
    library = Path(_folder().name, "set_clock.so")
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE)]
    subprocess.run(command, check=True, timeout=_COMPILE_DEADLINE)
    return str(library)


class Clock:
    """A time of day of its own, for processes that are started with its environment.

    Attributes:
        environment: more variables for them.
    """

    def __init__(self) -> None:
        library = _library()
        handle, path = tempfile.mkstemp(dir=_folder().name)
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
