"""Managed processes start, pause, die and are cleaned up as promised."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gateway.local import identity
from gateway.local.identity import ProcessIdentity
from gateway.local.processes import ManagedProcess, ProcessFailed, describe_exit
from tests.support.times import PATIENCE, scaled, time_limit

DEADLINE = scaled(PATIENCE)

SERVE = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("up", os.getpid(), os.environ.get("FLAVOUR"), os.getcwd(), flush=True)
while True:
    time.sleep(0.01)
    print("tick", flush=True)
"""
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""
FAIL = """
import sys
print("reading the configuration")
sys.exit("no such setting: colour")
"""


def python(script: str, log: Path, **options: object) -> ManagedProcess:
    return ManagedProcess("child", [sys.executable, "-u", "-c", script], log=log, **options)  # type: ignore[arg-type]


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines()


async def until(condition: Callable[[], bool]) -> None:
    async with time_limit():
        while not condition():  # noqa: ASYNC110 - the condition is of another process
            await asyncio.sleep(0.005)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "child.log"


@pytest.fixture
async def child(log: Path) -> AsyncIterator[ManagedProcess]:
    async with python(SERVE, log) as process:
        await process.ready(says(process, "up"), timeout=DEADLINE)
        yield process
    assert not process.running


def says(process: ManagedProcess, text: str) -> Callable[[], asyncio.Future[bool]]:
    def look() -> asyncio.Future[bool]:
        answer = asyncio.get_running_loop().create_future()
        # The child's output is not buffered: what it prints comes word by word.
        answer.set_result(any(text in line for line in process.log.read_text().split("\n")[:-1]))
        return answer

    return look


def start_and_read_pid(script: str) -> tuple[subprocess.Popen[bytes], ProcessIdentity]:
    """Start a parent; returns it and the identity of the child whose pid it prints."""
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(Path.cwd())}
    )
    assert parent.stdout is not None
    with parent.stdout:
        child = ProcessIdentity.of(int(parent.stdout.readline()))
    assert child is not None
    return parent, child


def reap(pid: int) -> None:
    os.waitpid(pid, 0)


async def test_output_environment_and_directory(tmp_path: Path, log: Path) -> None:
    async with python(SERVE, log, environment={"FLAVOUR": "mint"}, directory=tmp_path) as process:
        await process.ready(says(process, "up"), timeout=DEADLINE)

        assert lines(log)[0] == f"up {process.pid} mint {tmp_path}"
        assert os.getpgid(process.pid) == process.pid


async def test_a_variable_of_ours_can_be_withheld(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAVOUR", "ours")
    async with python(SERVE, log, environment={"FLAVOUR": None}) as process:
        await process.ready(says(process, "up"), timeout=DEADLINE)

        assert lines(log)[0].split()[2] == "None"


async def test_terminate_gives_the_exit_code(child: ManagedProcess) -> None:
    assert await child.terminate(timeout=DEADLINE) == 7
    assert child.exit_code == 7


async def test_a_second_start_appends_to_the_log(child: ManagedProcess) -> None:
    first = child.pid
    await child.kill()
    child.start()
    await until(lambda: child.log.read_text().count("up ") == 2)

    assert child.exit_code is None
    assert child.pid != first


async def test_starting_twice_is_refused(child: ManagedProcess) -> None:
    with pytest.raises(ProcessFailed, match="runs already"):
        child.start()


async def test_pause_and_resume(child: ManagedProcess) -> None:
    child.pause()
    await until(lambda: Path(f"/proc/{child.pid}/stat").read_text().split(")")[1].split()[0] == "T")
    size = child.log.stat().st_size
    assert child.running

    child.resume()

    await until(lambda: child.log.stat().st_size > size)


async def test_a_paused_process_can_be_stopped(child: ManagedProcess) -> None:
    child.pause()

    await child.stop(grace=DEADLINE)

    assert child.exit_code == 7


async def test_a_paused_process_can_be_killed(child: ManagedProcess) -> None:
    child.pause()

    await child.kill()

    assert child.exit_code == -signal.SIGKILL


async def test_stop_kills_what_does_not_listen(log: Path) -> None:
    process = python(DEAF, log)
    process.start()
    await process.ready(says(process, "up"), timeout=DEADLINE)

    with pytest.raises(ProcessFailed, match=r"did not end within 0\.05 s"):
        await process.terminate(timeout=0.05)
    assert process.running

    await process.stop(grace=0.05)
    assert process.exit_code == -signal.SIGKILL


async def test_stop_of_what_never_ran_has_no_effect(log: Path) -> None:
    process = python(SERVE, log)
    await process.stop()
    process.kill_now()

    assert process.exit_code is None
    with pytest.raises(ProcessFailed, match="does not run"):
        await process.kill()
    with pytest.raises(ProcessFailed, match="never started"):
        await process.wait(timeout=0)


async def test_an_end_before_readiness_shows_the_log(log: Path) -> None:
    async with python(FAIL, log) as process:
        with pytest.raises(ProcessFailed) as failure:
            await process.ready(says(process, "up"), timeout=DEADLINE)

    assert "child ended with exit code 1 before it was ready" in str(failure.value)
    assert "    reading the configuration" in str(failure.value)
    assert "no such setting: colour" in str(failure.value)


async def test_a_deadline_before_readiness_shows_the_log(child: ManagedProcess) -> None:
    with pytest.raises(ProcessFailed, match=r"(?s)was not ready within 0\.05 s.*tick"):
        await child.ready(says(child, "never said"), timeout=0.05)


async def test_a_program_that_does_not_exist(tmp_path: Path) -> None:
    process = ManagedProcess("ghost", [str(tmp_path / "nothing")], log=tmp_path / "log", detached=True)

    with pytest.raises(ProcessFailed, match="ghost can not be started"):
        process.start()


async def test_children_of_the_child_are_taken_along(log: Path) -> None:
    script = """
import subprocess, sys
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("grandchild", grandchild.pid, flush=True)
"""
    process = python(script, log)
    process.start()
    assert await process.wait(timeout=DEADLINE) == 0

    grandchild = int(lines(log)[0].split()[1])
    await until(lambda: ProcessIdentity.of(grandchild) is None)


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
async def test_the_child_dies_with_a_parent_that_is_killed(tmp_path: Path, log: Path) -> None:
    parent_script = f"""
import sys, time
from pathlib import Path
from gateway.local.processes import ManagedProcess
child = ManagedProcess("child", [sys.executable, "-c", "import time; time.sleep(600)"], log=Path({str(log)!r}))
child.start()
print(child.pid, flush=True)
time.sleep(600)
"""
    parent, child = start_and_read_pid(parent_script)

    def is_the_program() -> bool:
        # setpriv sets the signal before it becomes the program; in between there is a moment without any arguments.
        arguments = Path(f"/proc/{child.pid}/cmdline").read_text().split("\0")
        return any("sleep(600)" in argument for argument in arguments[2:3])

    try:
        await until(is_the_program)
        parent.kill()

        await until(lambda: parent.poll() is not None and not child.alive())
    finally:
        parent.kill()
        parent.wait()
        child.signal(signal.SIGKILL)


async def test_a_detached_process_can_be_released_and_stopped_by_its_identity(log: Path) -> None:
    process = python(SERVE, log, detached=True)
    process.start()
    await process.ready(says(process, "up"), timeout=DEADLINE)
    child = process._child
    known = process.identity()
    assert known.alive()

    process.release()
    assert not process.running
    assert known.alive()

    # Nobody waits for it here, so it stays a zombie; that counts as gone.
    assert await asyncio.to_thread(known.stop, grace=DEADLINE)
    assert not known.alive()
    assert not known.stop(grace=0)
    assert child is not None
    reap(child.pid)


async def test_the_identity_of_another_process_with_the_same_pid_is_not_killed(child: ManagedProcess) -> None:
    stale = ProcessIdentity(child.pid, "some earlier boot:12345")

    assert not stale.alive()
    assert not stale.signal(signal.SIGKILL)
    assert not stale.stop(grace=0)
    assert child.running


async def test_identity_stop_kills_what_does_not_listen(log: Path) -> None:
    async with python(DEAF, log) as process:
        await process.ready(says(process, "up"), timeout=DEADLINE)

        assert await asyncio.to_thread(process.identity().stop, grace=0.05)
        assert await process.wait(timeout=DEADLINE) == -signal.SIGKILL


def test_identity_of_a_free_pid() -> None:
    assert ProcessIdentity.of(2**22 + 1) is None


def test_exits_in_words() -> None:
    assert describe_exit(None) == "not started"
    assert describe_exit(3) == "exit code 3"
    assert describe_exit(-9) == "SIGKILL"
    assert describe_exit(-127) == "signal 127"


@pytest.mark.skipif(shutil.which("ps") is None, reason="there is no ps here")
async def test_processes_are_told_apart_by_ps_where_there_is_no_proc(child: ManagedProcess) -> None:
    pid = child.pid
    started = identity._started_by_ps(pid)

    assert started
    assert identity._started_by_ps(pid) == started

    await child.kill()
    assert identity._started_by_ps(pid) is None
