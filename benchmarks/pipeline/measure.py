"""What a program and all processes that it starts take."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import psutil  # type: ignore[import-untyped]

INTERVAL: Final = 0.5
"""Seconds between two looks at the memory; what is held for shorter may be missed."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a program took.

    Attributes:
        seconds: from start to end.
        cpu_seconds: user and system time, of its children too.
        peak_bytes: most memory of all its processes at a time; pages that several share count once (PSS).
        peak_jvm_bytes: the same of its JVMs alone.
        peak_python_bytes: the same of its Python processes alone.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    peak_jvm_bytes: int
    peak_python_bytes: int


def measure(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Taken:
    """Run a program and measure it.

    Args:
        command: to run; what it writes goes to standard error.
        environment: variables besides our own.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    cpu, began = os.times(), time.monotonic()
    with subprocess.Popen(command, env={**os.environ, **(environment or {})}, stdout=2) as process:
        watch = _Watch(process.pid)
        watch.start()
        code = process.wait()
        watch.end()
    seconds, after = time.monotonic() - began, os.times()
    if code:
        raise subprocess.CalledProcessError(code, command)
    used = after.children_user + after.children_system - cpu.children_user - cpu.children_system
    return Taken(seconds, used, watch.peak["all"], watch.peak["java"], watch.peak["python"])


class _Watch(threading.Thread):
    """Looks at the memory of a process and its descendants until it is told to end."""

    def __init__(self, pid: int) -> None:
        super().__init__(name="watch-memory", daemon=True)
        self._root = psutil.Process(pid)
        self._ended = threading.Event()
        self.peak = {"all": 0, "java": 0, "python": 0}

    def run(self) -> None:
        while not self._ended.wait(INTERVAL):
            now = {"all": 0, "java": 0, "python": 0}
            with suppress(psutil.NoSuchProcess):
                for each in [self._root, *self._root.children(recursive=True)]:
                    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                        held = each.memory_full_info().pss
                        now["all"] += held
                        kind = each.name()
                        now["java" if kind.startswith("java") else "python"] += held
            self.peak = {name: max(value, now[name]) for name, value in self.peak.items()}

    def end(self) -> None:
        self._ended.set()
        self.join()
