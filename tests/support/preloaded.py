"""Libraries that replace a call of the system in a process under test, which is otherwise as it always is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

CONNECT_ELSEWHERE: Final = "connect_elsewhere"
"""The library that leads connections to other ports."""

_ELSEWHERE: Final = "CONNECT_ELSEWHERE"

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


def elsewhere(library: str, ports: Mapping[int, int]) -> dict[str, str]:
    """Make the variables by which the connections of a process to some ports of the loopback go to other ones.

    Args:
        library: path of ``CONNECT_ELSEWHERE``.
        ports: where to, by where the process believes to go.
    """
    return {"LD_PRELOAD": library, _ELSEWHERE: ",".join(f"{port}={other}" for port, other in ports.items())}


def merged(*environments: Mapping[str, str]) -> dict[str, str]:
    """Join what ``elsewhere`` has made; an empty one adds nothing."""
    found = [each for each in environments if each]
    if not found:
        return {}
    return {**found[0], _ELSEWHERE: ",".join(each[_ELSEWHERE] for each in found)}


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="gateway-preloaded-")
