"""A child process under full control: started, watched, paused, killed, and never left behind.

Each child leads a process group of its own, writes to a log file, and is waited for by a condition with a deadline.
If the condition does not come true, the error shows the end of the log, because that is where the reason is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, ClassVar, Final, Protocol, Self

from gateway.local.identity import ProcessIdentity

POLL_SECONDS: Final = 0.02
"""How often a condition is looked at: short beside any start-up, long beside the cost of looking."""
STOP_GRACE_SECONDS: Final = 5.0
"""How long a child may take to end after SIGTERM before it is killed, where nobody asks for more."""
KILL_DEADLINE_SECONDS: Final = 30.0
"""How long the kernel may take to reap a killed child; more means an uninterruptible wait and is an error."""
LOG_TAIL_LINES: Final = 25
"""Lines of a log shown with a failure: a whole Python traceback usually fits."""
_LOG_TAIL_BYTES: Final = 16_384
"""How much of the end of a log is read for that."""


class ProcessFailed(Exception):
    """A child process did not do what was waited for; the message ends with the tail of its log."""


class Child(Protocol):
    """One run of a program, which leads a process group."""

    @property
    def pid(self) -> int:
        """Its process id."""

    def poll(self) -> int | None:
        """Look whether it has ended, and if so, kill what is left of its group.

        Returns:
            The exit code, or minus the number of the signal that killed it; None if it runs.
        """

    def wait(self, timeout: float) -> int:
        """Wait until it has ended, at most *timeout* seconds, without an event loop; returns as ``poll``.

        Raises:
            subprocess.TimeoutExpired: it has not.
        """

    def release(self) -> None:
        """Nobody will wait for it any more."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is started.

    Attributes:
        command: program and arguments.
        environment: all of its variables.
        directory: its working directory; ours if None.
        detached: whether it outlives us; else the kernel kills it when we end, where the system can do that.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    directory: Path | None
    detached: bool


class Launcher(Protocol):
    """What starts programs."""

    def __call__(self, program: Program, output: IO[bytes]) -> Child:
        """Start a program as the leader of a process group, with nothing to read, and a file that takes what it writes.

        Raises:
            OSError: it cannot be started.
        """


def launch(program: Program, output: IO[bytes]) -> Child:
    """Start a program; see ``Launcher``.

    ``setpriv`` sets PR_SET_PDEATHSIG and then becomes the program, so the pid stays the same. Doing it in a function
    between fork and exec is not safe in a process with threads.
    """
    setpriv = None if program.detached else shutil.which("setpriv")
    death_watch = [] if setpriv is None else [setpriv, "--pdeathsig", "KILL", "--"]
    process = subprocess.Popen(  # noqa: S603 - commands come from this package, never from users
        [*death_watch, *program.command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=program.environment,
        cwd=program.directory,
        start_new_session=True,
    )
    return _OwnChild(process)


class _OwnChild:
    """A child of this process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        if not _has_ended(self._process):
            return None
        if self._process.returncode is None:
            # Before it is reaped, its pid (the group's id) can not have been given to anybody else.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()

    def wait(self, timeout: float) -> int:
        return self._process.wait(timeout)

    def release(self) -> None:
        # Popen warns of a child that nobody waited for; here that is the intention.
        self._process.returncode = 0


class ManagedProcess:
    """One child process that can be started again and again under the same name.

    Attributes:
        name: for people and for the log file.
        log: the file that takes its standard output and error; appended to over restarts.
        launcher: starts it.
    """

    launcher: ClassVar[Launcher] = staticmethod(launch)

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str | None] | None = None,
        directory: Path | None = None,
        detached: bool = False,
    ) -> None:
        """Describe a process; nothing starts yet.

        Args:
            name: for people.
            command: program and arguments.
            log: file for its output.
            environment: variables in addition to our own; None takes one of ours away.
            directory: its working directory; ours if None.
            detached: True for a process that outlives us; else it dies with us, even if we are killed.
        """
        self.name = name
        self.log = log
        self._command = list(command)
        self._environment = dict(environment or {})
        self._directory = directory
        self._detached = detached
        self._child: Child | None = None
        self._exit_code: int | None = None

    @property
    def command(self) -> tuple[str, ...]:
        """Program and arguments, as given."""
        return tuple(self._command)

    @property
    def pid(self) -> int:
        """Its process id.

        Raises:
            ProcessFailed: it does not run.
        """
        return self._running().pid

    @property
    def running(self) -> bool:
        """Whether it runs; a paused process runs."""
        return self._poll() is None and self._child is not None

    @property
    def exit_code(self) -> int | None:
        """How the last run ended: its exit code, or minus the signal's number; None if it runs or never ran."""
        return None if self.running else self._exit_code

    def identity(self) -> ProcessIdentity:
        """Tell which process it is, for a pid file.

        Raises:
            ProcessFailed: it does not run.
        """
        identity = ProcessIdentity.of(self.pid)
        if identity is None:
            raise self._failure("has ended")
        return identity

    def start(self) -> None:
        """Start it. Does not wait for anything; use ``ready`` for that.

        Raises:
            ProcessFailed: it runs already, or the program does not exist.
        """
        if self.running:
            raise ProcessFailed(f"{self.name} runs already, with pid {self.pid}")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, **self._environment}
        program = Program(
            self._command,
            {name: value for name, value in environment.items() if value is not None},
            self._directory,
            self._detached,
        )
        with self.log.open("ab") as output:
            try:
                self._child = self.launcher(program, output)
            except OSError as error:
                raise ProcessFailed(f"{self.name} can not be started by {self._command[0]}: {error}") from error
        self._exit_code = None

    async def ready(self, condition: Callable[[], Awaitable[bool]], *, timeout: float) -> None:  # noqa: ASYNC109
        """Wait until *condition* is true.

        Args:
            condition: looked at again and again; must not raise for "not yet".
            timeout: the deadline, in seconds.

        Raises:
            ProcessFailed: the process ended, or the deadline passed; with the tail of the log.
        """
        deadline = time.monotonic() + timeout
        while not await condition():
            if not self.running:
                raise self._failure(f"ended with {describe_exit(self._exit_code)} before it was ready")
            if time.monotonic() >= deadline:
                raise self._failure(f"was not ready within {timeout:g} s")
            await asyncio.sleep(POLL_SECONDS)

    async def wait(self, *, timeout: float) -> int:  # noqa: ASYNC109 - the deadline is part of the question
        """Wait for its end.

        Args:
            timeout: the deadline, in seconds.

        Returns:
            The exit code, or minus the number of the signal that killed it.

        Raises:
            ProcessFailed: it still runs at the deadline, or it never ran.
        """
        deadline = time.monotonic() + timeout
        while self.running:
            if time.monotonic() >= deadline:
                raise self._failure(f"did not end within {timeout:g} s")
            await asyncio.sleep(POLL_SECONDS)
        if self._exit_code is None:
            raise ProcessFailed(f"{self.name} was never started")
        return self._exit_code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to it and all of its group.

        Raises:
            ProcessFailed: it does not run.
        """
        os.killpg(self._running().pid, number)

    async def kill(self) -> None:
        """Kill it with SIGKILL, paused or not, and wait until it is gone.

        Raises:
            ProcessFailed: it does not run.
        """
        self.send_signal(signal.SIGKILL)
        await self.wait(timeout=KILL_DEADLINE_SECONDS)

    def pause(self) -> None:
        """Stop it with SIGSTOP: its sockets stay open and nothing answers.

        Raises:
            ProcessFailed: it does not run.
        """
        self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on with SIGCONT.

        Raises:
            ProcessFailed: it does not run.
        """
        self.send_signal(signal.SIGCONT)

    async def terminate(self, *, timeout: float) -> int:  # noqa: ASYNC109 - the deadline is part of the question
        """Ask it to end, with SIGTERM, and wait.

        Args:
            timeout: the deadline, in seconds; past it the process is left running.

        Returns:
            The exit code.

        Raises:
            ProcessFailed: it does not run, or still runs at the deadline.
        """
        self.send_signal(signal.SIGTERM)
        return await self.wait(timeout=timeout)

    async def stop(self, *, grace: float = STOP_GRACE_SECONDS) -> None:
        """Make sure that it is gone: politely, and by force after *grace* seconds. No effect if it does not run.

        Cancelling this kills the process at once: clean-up is never left half done.
        """
        if not self.running:
            return
        try:
            self.send_signal(signal.SIGTERM)
            # A paused process takes no SIGTERM before it goes on.
            self.send_signal(signal.SIGCONT)
            await self.wait(timeout=grace)
        except ProcessFailed:
            if self.running:
                await self.kill()
        except asyncio.CancelledError:
            self.kill_now()
            raise

    def kill_now(self) -> None:
        """Kill it and wait for its end without an event loop, for clean-up. No effect if it does not run."""
        if self._child is None or not self.running:
            return
        os.killpg(self._child.pid, signal.SIGKILL)
        self._exit_code = self._child.wait(KILL_DEADLINE_SECONDS)
        self._child = None

    def release(self) -> None:
        """Forget a detached process: it goes on without us, and we no longer know it."""
        if self._child is not None:
            self._child.release()
            self._child = None

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines of the log, indented."""
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _LOG_TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            text = ""
        tail = text.splitlines()[-lines:]
        return "\n".join(f"    {line}" for line in tail) or "    (the log is empty)"

    def __repr__(self) -> str:
        state = f"pid {self._child.pid}" if self.running and self._child else describe_exit(self._exit_code)
        return f"<ManagedProcess {self.name}: {state}>"

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def _running(self) -> Child:
        if not self.running or self._child is None:
            raise self._failure(f"does not run ({describe_exit(self._exit_code)})")
        return self._child

    def _poll(self) -> int | None:
        """Look whether the child has ended; if so, take what is left of its group with it."""
        if self._child is None:
            return self._exit_code
        code = self._child.poll()
        if code is not None:
            self._exit_code, self._child = code, None
        return code

    def _failure(self, what: str) -> ProcessFailed:
        return ProcessFailed(f"{self.name} {what}; the end of {self.log}:\n{self.log_tail()}")


def describe_exit(code: int | None) -> str:
    """Say an exit code in words, signals by their name."""
    if code is None:
        return "not started"
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Tell whether a child has ended, if possible without reaping it."""
    waitid = getattr(os, "waitid", None)  # macOS has it from Python 3.13 on.
    if waitid is None:
        return child.poll() is not None
    try:
        return waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


_EXTRA_PATH: Final = "/usr/local/sbin:/usr/sbin:/sbin:/opt/homebrew/bin:/usr/local/bin"
"""Where packages put servers, though it may not be on a user's PATH."""


class ProgramMissing(Exception):
    """redis-server or haproxy is not installed; the message says what to do."""


def find_program(name: str) -> str:
    """Find a server program, also where a user's PATH does not lead.

    Raises:
        ProgramMissing: it is not installed.
    """
    path = shutil.which(name) or shutil.which(name, path=_EXTRA_PATH)
    if path is None:
        raise ProgramMissing(
            f"{name} is not installed; `make demo`, `make observe` and `make test` install what they need by apt or "
            "brew, elsewhere install Redis 7.0, HAProxy 2.6 and Prometheus 2.42 or newer by hand"
        )
    return path
