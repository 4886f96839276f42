"""Libraries that replace a call of the system in a process under test, which is otherwise as it always is."""

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

_COMPILE_DEADLINE: Final = 60.0
"""Seconds for 40 lines of C on a busy machine."""


@cache
def folder() -> Path:
    """A folder for libraries and what they read; gone at the end of the run."""
    return Path(_folder().name)


def unavailable(what: str) -> str:
    """Tell why nothing can be preloaded on this machine; empty if it can be.

    Args:
        what: cannot be done then, as the subject of a sentence.
    """
    if sys.platform != "linux":
        return f"{what} only on Linux"
    return "" if shutil.which("cc") else f"{what} only with a C compiler, and there is no cc"


@cache
def library(name: str, what: str) -> str:
    """Compile a library: skips the test where there is no C compiler for Linux, but fails it under CI.

    Args:
        name: of its source beside this module, without the suffix.
        what: cannot be done without it; see ``unavailable``.

    Returns:
        Its path.
    """
    if why := unavailable(what):
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"{why}, and CI must not skip tests", pytrace=False)
        pytest.skip(why)
    source, built = Path(__file__).with_name(f"{name}.c"), folder() / f"{name}.so"
    # -ldl: before glibc 2.34 dlsym is in a library of its own.
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(built), str(source), "-ldl"]
    subprocess.run(command, check=True, timeout=_COMPILE_DEADLINE)
    return str(built)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="gateway-preloaded-")
