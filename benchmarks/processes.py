"""Programs that are measured: started on a core of their own, watched, and stopped with all their children."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.systems.base import SystemFailed, SystemUnavailable
from gateway.local.ports import free_port

HOST: Final = "127.0.0.1"

START_DEADLINE: Final = 120.0
"""Seconds until a program must be ready; generous because a Node.js server loads its modules first."""

STOP_DEADLINE: Final = 5.0
"""Seconds that a program gets to end by itself before it is killed."""

LAST_OUTPUT_BYTES: Final = 2_000
"""How much of a program's output an error message quotes, from its end."""

_POLL: Final = 0.01
"""Seconds between looks at a condition."""


def wait_until(condition: Callable[[], bool], what: str, *, within: float = START_DEADLINE) -> None:
    """Wait until *condition* holds.

    Args:
        condition: looked at every 10 ms.
        what: is waited for, for the error.
        within: seconds.

    Raises:
        SystemFailed: it did not hold in time.
    """
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise SystemFailed(f"{what}: not within {within:.0f} s")
        time.sleep(_POLL)


def listens(port: int) -> bool:
    """Tell whether something accepts connections on *port* of 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        return probe.connect_ex((HOST, port)) == 0


def family(pid: int) -> list[int]:
    """Tell the ids of a process and all its descendants that live now; empty if it is gone."""
    children: list[int] = []
    try:
        for each in Path(f"/proc/{pid}/task").iterdir():
            children += map(int, (each / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [pid, *(each for child in children for each in family(child))]


def die_with_us() -> list[str]:
    """Have the kernel end a program with us, also if we are killed; it keeps its id. Needs util-linux."""
    setpriv = shutil.which("setpriv")
    return [] if setpriv is None else [setpriv, "--pdeathsig", "KILL", "--"]


class PinnedProcess:
    """A program on one core, in a process group of its own.

    Args:
        arguments: of the program; the first is the program.
        core: that it and its children are bound to.
        folder: for its output.
        environment: added to this process's own.
        directory: to start it in; *folder* if None.

    Raises:
        SystemUnavailable: there is no such program.
    """

    def __init__(
        self,
        arguments: Sequence[str | Path],
        *,
        core: int,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        if shutil.which(arguments[0]) is None:
            raise SystemUnavailable(f"{arguments[0]} is not installed")
        self.name = Path(arguments[0]).name
        self._output = folder / f"{self.name}-{os.urandom(4).hex()}.log"
        with self._output.open("wb") as output:
            # Bound before it runs, so that every thread and child of it inherits the binding.
            self.process = subprocess.Popen(
                [*die_with_us(), "taskset", "--cpu-list", str(core), *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=directory or folder,
                env=os.environ | dict(environment or {}),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the program itself."""
        return self.process.pid

    def pids(self) -> list[int]:
        """Of the program and all its descendants that live now."""
        return family(self.pid)

    def last_output(self) -> str:
        """Return the end of what it printed."""
        return self._output.read_bytes()[-LAST_OUTPUT_BYTES:].decode(errors="replace").strip()

    def check(self) -> None:
        """Raise ``SystemFailed`` if it has ended."""
        code = self.process.poll()
        if code is not None:
            raise SystemFailed(f"{self.name} ended with {code}: {self.last_output()}")

    def wait_ready(self, ready: Callable[[], bool]) -> None:
        """Wait until *ready* holds while the program lives.

        Raises:
            SystemFailed: it ended, or was not ready in time.
        """

        def ready_or_dead() -> bool:
            self.check()
            return ready()

        try:
            wait_until(ready_or_dead, f"{self.name} is ready")
        except SystemFailed as error:
            raise SystemFailed(f"{error}\n{self.last_output()}") from error

    def signal(self, number: int) -> None:
        """Send a signal to the program and its children; nothing happens if they are gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def stop(self) -> None:
        """Ask it to end, then kill what is left of its group; harmless if that was done before."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_DEADLINE)
        self.signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


REDIS_SETTINGS: Final[Mapping[str, str]] = {"save": "", "appendonly": "no"}
"""The same for every system: nothing is written to disk, which is Redis's default for AOF, and no snapshots fall into a
measurement."""


@contextlib.contextmanager
def redis_server(core: int) -> Iterator[tuple[PinnedProcess, int]]:
    """Run a private redis-server on *core* for the length of the block; yields it and its port.

    Raises:
        SystemUnavailable: redis-server is not installed.
        SystemFailed: it did not come up.
    """
    port = free_port()
    with scratch_folder("redis") as folder:
        arguments = ["redis-server", "--port", str(port), "--bind", HOST, "--dir", str(folder)]
        for name, value in REDIS_SETTINGS.items():
            arguments += [f"--{name}", value]
        with PinnedProcess(arguments, core=core, folder=folder) as process:
            process.wait_ready(lambda: listens(port))
            yield process, port


@contextlib.contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """Make a folder for the length of the block."""
    folder = Path(tempfile.mkdtemp(prefix=f"benchmarks-{name}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
