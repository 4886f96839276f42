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


@cache
def _library() -> str:
    """Compile what is preloaded: skips the test where there is no C compiler for Linux, but fails it under CI.

    Returns:
        Its path.
    """
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail("there is no C compiler, and CI must not skip tests", pytrace=False)
        pytest.skip("the clock of Redis can be set only on Linux, and with a C compiler")
    library = Path(_folder().name, "set_clock.so")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE)]
    subprocess.run(command, check=True, timeout=_COMPILE_DEADLINE)
    return str(library)


class ClockedRedis(RedisServer):
    """A private redis-server with a clock of its own."""

    def __init__(self) -> None:
        library = _library()
        handle, path = tempfile.mkstemp(dir=_folder().name)
        os.close(handle)
        self._ahead = Path(path)
        self.set_clock(0)
        super().__init__(environment={"LD_PRELOAD": library, "CLOCK_AHEAD": path})

    def set_clock(self, seconds: int) -> None:
        """Set its clock so many seconds ahead of the right time; behind it if they are negative."""
        new = self._ahead.with_suffix(".new")
        new.write_text(f"{seconds}\n")
        new.replace(self._ahead)  # at once, so that it never reads half of it
