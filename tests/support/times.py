"""Real time in tests: one factor by which all of it is longer on a machine that is busy or slow.

A test that can use virtual time does (``tests.support.clock.VirtualClock``). What cannot, because it waits for another
process, for a socket or for the clock of Redis, says how long it takes on a quiet machine with two cores and has it
scaled here, and nowhere else:

* ``time_limit(5)`` and the helpers that wait (``eventually``, ``RawClient.expect`` …) bound a wait for something that
  must come. A wait that ends early costs nothing.
* ``scaled(0.25)`` is a time that passes for real: a lease that is to expire, a time-out that a test lets happen.

The factor is measured once per run, by how long a Python takes to start, and raised by the processes of the run itself.
``TEST_TIME_SCALE=4`` sets it instead. The gateway's own defaults are never scaled.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from statistics import median
from typing import Final

SCALE_VARIABLE: Final = "TEST_TIME_SCALE"
"""The environment variable that sets the factor. Not GATEWAY_…: a node refuses such a variable that is no setting."""

MEASURED_VARIABLE: Final = "TEST_TIME_MEASURED"
"""Where the first process of a run leaves what it has measured for all that it starts."""

WORKERS_VARIABLE: Final = "PYTEST_XDIST_WORKER_COUNT"
"""Where pytest-xdist tells its workers how many they are."""

LARGEST_SCALE: Final = 10.0
"""The largest factor that is measured: a test that hangs must still end within the hour."""

PATIENCE: Final = 20.0
"""Seconds, on a quiet machine, until what a test waits for counts as broken. Whoever waits is served much sooner."""

_STARTS: Final = 7
"""Starts of Python to measure; the median of them is not moved by one that had to wait for the disk."""

_QUIET_START: Final = 0.015
"""Seconds that a start takes on a quiet machine with two cores; 0.012 was measured, and 0.12 beside ten busy loops."""


def crowded(measured: float, *, processes: int, cores: int) -> float:
    """Raise a factor that was measured before the run began by what the run itself will take.

    Args:
        measured: how much longer a start of Python took than on a quiet machine.
        processes: in which tests will run at the same time.
        cores: of the machine.

    Returns:
        The factor, at least 1. Every further process takes a core for half of its time: the other half it waits.
    """
    return round(min(LARGEST_SCALE, max(1.0, measured) + (processes - 1) / (2 * cores)), 2)


def scale(processes: int | None = None) -> float:
    """Tell the factor, and measure if nobody has.

    Args:
        processes: in which tests run at the same time; by default, as pytest-xdist tells.

    Returns:
        The factor.

    Raises:
        ValueError: the environment sets something that is no number above 0.
    """
    if os.environ.get(SCALE_VARIABLE):
        return _set(SCALE_VARIABLE)
    if not os.environ.get(MEASURED_VARIABLE):
        os.environ[MEASURED_VARIABLE] = f"{_measured():.2f}"
    if processes is None:
        processes = int(os.environ.get(WORKERS_VARIABLE, "1"))
    return crowded(_set(MEASURED_VARIABLE), processes=processes, cores=os.cpu_count() or 1)


def scaled(seconds: float) -> float:
    """Scale a real time.

    Args:
        seconds: on a quiet machine.

    Returns:
        The seconds on this machine, in whole milliseconds: some are written into settings.
    """
    return round(seconds * scale(), 3)


def time_limit(seconds: float = PATIENCE) -> asyncio.Timeout:
    """Bound the time of a block that waits.

    Args:
        seconds: on a quiet machine.

    Raises:
        TimeoutError: at the end of the block, if it took longer.
    """
    return asyncio.timeout(scaled(seconds))


def _set(variable: str) -> float:
    """Read a factor from the environment."""
    written = os.environ[variable]
    try:
        value = float(written)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"{variable} must be a number above 0, such as 4, and is {written!r}")
    return value


def _measured() -> float:
    """How many times longer Python takes to start than on a quiet machine."""
    starts = []
    for _ in range(_STARTS):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)
        starts.append(time.perf_counter() - begun)
    return median(starts) / _QUIET_START
