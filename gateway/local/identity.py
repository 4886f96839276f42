"""Which process a pid really means: pids are reused, so a pid alone must never be killed.

A process is identified by its pid *and* the moment it started. A pid file that outlived its process, or the whole
machine's uptime, is thereby recognised and ignored.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_BOOT_ID: Final = _PROC / "sys/kernel/random/boot_id"
_STATE_FIELD: Final = 0
"""Position of the process state in ``/proc/PID/stat``, counted after the command's closing parenthesis."""
_START_FIELD: Final = 19
"""Position of the start time (clock ticks since boot) in the same line."""
_GONE_STATES: Final = frozenset("ZXx")
"""Zombies and dead processes hold a pid but run nothing."""
_POLL_SECONDS: Final = 0.02
"""How often the end of a process that is not our child is looked for; there is no event for it on every system."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One run of one process.

    Attributes:
        pid: its process id, which is also the id of its process group.
        started: when it started, in a form that is only good for comparing.
    """

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """Identify the process that has *pid* now; None if there is none or it has ended."""
        started = _started(pid)
        return None if started is None else cls(pid, started)

    def alive(self) -> bool:
        """Tell whether this very process still runs."""
        return _started(self.pid) == self.started

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to this very process and its group.

        Returns:
            False if the process has ended; nothing was signalled, whoever has its pid now.
        """
        if not self.alive():
            return False
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def stop(self, *, grace: float) -> bool:
        """End the process: politely first, by force after *grace* seconds. Blocks until it is gone.

        Returns:
            True if it was alive; False if there was nothing to stop.
        """
        if not self.signal(signal.SIGTERM):
            return False
        # A stopped (SIGSTOP) process takes no SIGTERM before it goes on.
        self.signal(signal.SIGCONT)
        deadline = time.monotonic() + grace
        while self.alive():
            if time.monotonic() >= deadline:
                self.signal(signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
        return True


def _started(pid: int) -> str | None:
    if _BOOT_ID.exists():
        return _started_by_proc(pid)
    return _started_by_ps(pid)


def _started_by_proc(pid: int) -> str | None:
    try:
        line = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command, in parentheses, may itself hold spaces and parentheses: count from the last one.
    fields = line[line.rindex(")") + 1 :].split()
    if fields[_STATE_FIELD] in _GONE_STATES:
        return None
    # Ticks count from boot, so that they mean nothing without the boot they count from.
    return f"{_BOOT_ID.read_text().strip()}:{fields[_START_FIELD]}"


def _started_by_ps(pid: int) -> str | None:
    """Ask ``ps`` where there is no ``/proc`` (macOS, BSD); its start time has a resolution of one second."""
    ps = shutil.which("ps")
    if ps is None:
        raise RuntimeError("neither /proc nor the command ps exists: processes cannot be distinguished here")
    answer = subprocess.run(  # noqa: S603 - a fixed command with a number
        [ps, "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env={"LC_ALL": "C", "PATH": os.defpath},
    )
    state, _, started = answer.stdout.strip().partition(" ")
    if answer.returncode != 0 or not started or state[0] in _GONE_STATES:
        return None
    return started.strip()
