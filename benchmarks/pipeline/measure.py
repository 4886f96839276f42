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
"""Seconds between two looks; what is held or used for shorter may be missed."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a program took.

    Attributes:
        seconds: from start to end.
        cpu_seconds: user and system time of all its processes, each up to the last look at it.
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
    began = time.monotonic()
    with subprocess.Popen(command, env={**os.environ, **(environment or {})}, stdout=2) as process:
        watch = _Watch(process.pid)
        watch.start()
        code = process.wait()
        watch.end()
    seconds = time.monotonic() - began
    if code:
        raise subprocess.CalledProcessError(code, command)
    return Taken(seconds, sum(watch.cpu.values()), watch.peak["all"], watch.peak["java"], watch.peak["python"])


class _Watch(threading.Thread):
    """Looks at the memory of a process and its descendants until it is told to end."""

    def __init__(self, pid: int) -> None:
        super().__init__(name="watch-memory", daemon=True)
        self._root = psutil.Process(pid)
        self._ended = threading.Event()
        self.peak = {"all": 0, "java": 0, "python": 0}
        self.cpu: dict[int, float] = {}

    def run(self) -> None:
        while not self._ended.wait(INTERVAL):
            now = {"all": 0, "java": 0, "python": 0}
            with suppress(psutil.NoSuchProcess):
                for each in [self._root, *self._root.children(recursive=True)]:
                    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                        # Of each process, as the system does not add those up that nobody waits for: Spark's JVM.
                        self.cpu[each.pid] = sum(each.cpu_times()[:2])
                        held = each.memory_full_info().pss
                        now["all"] += held
                        kind = each.name()
                        now["java" if kind.startswith("java") else "python"] += held
            self.peak = {name: max(value, now[name]) for name, value in self.peak.items()}

    def end(self) -> None:
        self._ended.set()
        self.join()
