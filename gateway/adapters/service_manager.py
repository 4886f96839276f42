"""Talks to systemd as ``sd_notify(3)`` describes: one datagram of assignments for each piece of news.

Twenty lines of a protocol that has not changed in ten years, so no library: ``systemd-python`` has to be compiled, and
``sdnotify`` knows neither the watchdog nor reloads.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

SOCKET_VARIABLE: Final = "NOTIFY_SOCKET"
WATCHDOG_VARIABLE: Final = "WATCHDOG_USEC"
WATCHDOG_PROCESS_VARIABLE: Final = "WATCHDOG_PID"
"""Set by systemd for services of ``Type=notify`` and with ``WatchdogSec=``."""

LONGEST_STATUS: Final = 200
"""Characters: one line of ``systemctl status``."""

_MICROSECONDS: Final = 1_000_000


class Systemd:
    """A ``ServiceManager``; without the variables that systemd sets, nobody is told anything.

    Args:
        environment: of this process.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = _address(environment.get(SOCKET_VARIABLE, ""))
        self._watchdog = _watchdog(environment) if self._address else None

    @property
    def watchdog(self) -> float | None:
        """See ``ServiceManager``."""
        return self._watchdog

    def ready(self) -> None:
        """See ``ServiceManager``."""
        self._tell("READY=1")

    def reloading(self) -> None:
        """See ``ServiceManager``."""
        # Newer versions of systemd want to know when it began, to tell this reload's READY from an earlier one.
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._tell("RELOADING=1", f"MONOTONIC_USEC={now}")

    def stopping(self) -> None:
        """See ``ServiceManager``."""
        self._tell("STOPPING=1")

    def alive(self) -> None:
        """See ``ServiceManager``."""
        self._tell("WATCHDOG=1")

    def status(self, text: str) -> None:
        """See ``ServiceManager``."""
        self._tell("STATUS=" + " ".join(text.split())[:LONGEST_STATUS])

    def _tell(self, *assignments: str) -> None:
        if not self._address:
            return
        # A manager that does not listen any more, or too slowly, must not hurt the node.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(assignments).encode(), self._address)


def _address(given: str) -> str:
    """Read where the socket is: a path, or after an ``@`` a name in Linux's abstract namespace."""
    if given.startswith("@"):
        return "\0" + given[1:]
    return given if given.startswith("/") else ""


def _watchdog(environment: Mapping[str, str]) -> float | None:
    process = environment.get(WATCHDOG_PROCESS_VARIABLE)
    microseconds = environment.get(WATCHDOG_VARIABLE, "")
    if not microseconds.isdecimal() or int(microseconds) == 0 or process not in {None, str(os.getpid())}:
        return None
    return int(microseconds) / _MICROSECONDS
