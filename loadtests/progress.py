"""One line every few seconds, and one for each thing that is done to the system: enough to see that it works."""

from __future__ import annotations

import time
from typing import Final

from locust.env import Environment
from rich.console import Console

from loadtests.figures import DELIVER, PUBLISH
from loadtests.greenlets import sleep
from loadtests.recorder import REQUEST_TYPE, Recorder

INTERVAL: Final = 5.0
"""Seconds from one line to the next."""

_RUNNING: Final = frozenset({"spawning", "running"})
"""States of a runner in which there is something to tell."""


class Progress:
    """Tells what is going on.

    Args:
        environment: of locust.
        recorder: of the leading process.
        console: where to write.
    """

    def __init__(self, environment: Environment, recorder: Recorder, console: Console) -> None:
        self._environment = environment
        self._recorder = recorder
        self._console = console
        self._began = time.monotonic()
        self._delivered = 0
        self._told = self._began

    def begin(self) -> None:
        """Count seconds from now on."""
        self._began = self._told = time.monotonic()
        self._delivered = 0

    def say(self, text: str) -> None:
        """Tell that something is done."""
        self._console.print(f"{self._seconds()}  [bold]{text}[/bold]")

    def run(self) -> None:
        """Write a line every few seconds, for ever; for a greenlet of its own."""
        while True:
            sleep(INTERVAL)
            runner = self._environment.runner
            if runner is not None and runner.state in _RUNNING:
                self._line(runner.user_count)

    def _line(self, users: int) -> None:
        now = time.monotonic()
        stats = self._environment.stats
        deliver, publish = stats.get(DELIVER, REQUEST_TYPE), stats.get(PUBLISH, REQUEST_TYPE)
        rate = (deliver.num_requests - self._delivered) / max(now - self._told, 1e-9)
        self._delivered, self._told = deliver.num_requests, now
        tally = self._recorder.total()
        self._console.print(
            f"{self._seconds()}  {users:5} users {rate:8,.0f} updates/s   deliver p50 {_current(deliver, 0.5)} "
            f"p99 {_current(deliver, 0.99)}   publish p99 {_current(publish, 0.99)}   resumed {tally.recoveries} "
            f"lost {tally.sessions_lost}   failures {stats.num_failures}",
            soft_wrap=True,
        )

    def _seconds(self) -> str:
        return f"{time.monotonic() - self._began:5.0f} s"


def _current(entry: object, share: float) -> str:
    """Write a quantile of the last ten seconds."""
    value = entry.get_current_response_time_percentile(share)  # type: ignore[attr-defined]
    return "     -" if value is None else f"{value:3.0f} ms"
