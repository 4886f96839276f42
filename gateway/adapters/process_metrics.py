"""Metrics of the process, as Prometheus's clients have them everywhere, at a cost that does not grow with connections.

``prometheus_client.ProcessCollector`` lists ``/proc/self/fd`` to count descriptors: 7 ms of the event loop for 10,000
sessions, more than all other metrics together take. Linux tells their number since 6.2, as the size of that folder.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

PROC: Final = Path("/proc")
"""Where the kernel tells of processes."""

LISTED_EVERY: Final = 10.0
"""Seconds for which the number of descriptors is good that an older kernel makes one list: they run out in minutes."""

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")

_USER_TIME: Final = 11
_SYSTEM_TIME: Final = 12
_START_TIME: Final = 19
_VIRTUAL_BYTES: Final = 20
_RESIDENT_PAGES: Final = 21
"""Places of these in ``/proc/self/stat`` behind the name of the program; see proc(5)."""


class ProcessMetrics(Collector):
    """Collects them; nothing where there is no ``/proc``.

    Args:
        proc: where the kernel tells of processes.
        clock: seconds that never go back.
    """

    def __init__(self, *, proc: Path = PROC, clock: Callable[[], float] = time.monotonic) -> None:
        self._stat = proc / "self" / "stat"
        self._descriptors = proc / "self" / "fd"
        self._clock = clock
        self._booted = _booted(proc / "stat")
        self._listed: tuple[float, int] | None = None

    def collect(self) -> Iterator[Family]:
        """Hand everything to the library."""
        try:
            # The name of the program may hold anything, and ends with the last bracket.
            told = self._stat.read_bytes().rpartition(b")")[2].split()
        except OSError:
            return
        yield GaugeMetricFamily(
            "process_virtual_memory_bytes", "Virtual memory size in bytes.", value=float(told[_VIRTUAL_BYTES])
        )
        yield GaugeMetricFamily(
            "process_resident_memory_bytes",
            "Resident memory size in bytes.",
            value=float(told[_RESIDENT_PAGES]) * _PAGE,
        )
        yield GaugeMetricFamily(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            value=self._booted + float(told[_START_TIME]) / _TICKS,
        )
        yield CounterMetricFamily(
            "process_cpu_seconds_total",
            "Total user and system CPU time spent in seconds.",
            value=(float(told[_USER_TIME]) + float(told[_SYSTEM_TIME])) / _TICKS,
        )
        yield GaugeMetricFamily(
            "process_open_fds", "Number of open file descriptors.", value=float(self.open_descriptors())
        )
        yield GaugeMetricFamily(
            "process_max_fds",
            "Maximum number of open file descriptors.",
            value=float(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        )

    def open_descriptors(self) -> int:
        """Count the open descriptors, without a list of them if the kernel can tell."""
        told = self._descriptors.stat().st_size
        if told:
            return told
        now = self._clock()
        if self._listed is None or now - self._listed[0] >= LISTED_EVERY:
            self._listed = (now, len(os.listdir(self._descriptors)))  # noqa: PTH208 - names will do
        return self._listed[1]


def _booted(stat: Path) -> float:
    """Tell when the machine was started, in seconds since 1970."""
    try:
        lines = stat.read_bytes().splitlines()
    except OSError:
        return 0.0
    return next((float(line.split()[1]) for line in lines if line.startswith(b"btime ")), 0.0)
