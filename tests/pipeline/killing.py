"""Runs of `pipeline` in processes of their own, which are killed at random moments."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from tests.support.times import scaled

DEADLINE: Final = scaled(900.0)
"""Seconds without progress after which a run has failed; the machine may be busy with other things."""
_POLL: Final = 0.05


class Jobs:
    """Runs of the command, one at a time.

    Args:
        folder: for what they say.
    """

    def __init__(self, folder: Path) -> None:
        self._said = folder / "said.log"
        self._running: subprocess.Popen[bytes] | None = None

    def start(self, command: str, *arguments: str) -> None:
        """Start a run, in a process group of its own, so that a kill takes the JVM and its workers, too."""
        with self._said.open("ab") as output:
            self._running = subprocess.Popen(
                [sys.executable, "-m", "pipeline", "--traceback", command, *arguments],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait_for(self, progress: Callable[[], bool]) -> None:
        """Wait until the run has done something, so that no kill only hits a JVM that is starting.

        Raises:
            RuntimeError: it ended, or does nothing.
        """
        assert self._running is not None
        deadline = time.monotonic() + DEADLINE
        while not progress():
            if (code := self._running.poll()) is not None:
                raise self._failure(f"the run ended with {code}")
            if time.monotonic() > deadline:
                raise self._failure("the run does nothing")
            time.sleep(_POLL)

    def kill(self) -> None:
        """Kill -9; harmless if nothing runs."""
        job, self._running = self._running, None
        if job is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()

    def finish(self, command: str, *arguments: str) -> float:
        """Run to the end.

        Returns:
            How many seconds it took.

        Raises:
            RuntimeError: it failed.
        """
        begun = time.monotonic()
        self.start(command, *arguments)
        assert self._running is not None
        if code := self._running.wait(DEADLINE):
            raise self._failure(f"`pipeline {command}` ended with {code}")
        return time.monotonic() - begun

    def _failure(self, what: str) -> RuntimeError:
        """Say what went wrong, with what the last run said."""
        return RuntimeError(f"{what}; it said:\n{self._said.read_text('utf-8', 'replace')[-4000:]}")


class Finish(Protocol):
    """Runs a command of the pipeline to its end."""

    def __call__(self, command: str, *arguments: str) -> float:
        """See ``Jobs.finish``."""


class Outcome(Protocol):
    """What was found; a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def good(self) -> bool:
        """Whether the promise was kept."""


def options(description: str | None) -> argparse.ArgumentParser:
    """Make a parser of what all such programs take."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--longest", type=float, default=10.0, help="seconds between progress and the kill, at most")
    return parser


def told(outcome: Outcome) -> int:
    """Print what was found; the exit code, which is 1 if the promise was broken."""
    sys.stdout.write(f"{json.dumps(asdict(outcome) | {'good': outcome.good}, indent=1)}\n")
    return 0 if outcome.good else 1


def progress(text: str) -> None:
    """Show how far it is."""
    sys.stderr.write(f"{text}\n")
