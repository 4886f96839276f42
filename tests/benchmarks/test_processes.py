"""Programs under measurement: where they run, what they use, and that nothing of them is left."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from benchmarks.measure import cpu_between, cpu_by_role, process_cpu, resident_bytes
from benchmarks.placement import Placement
from benchmarks.processes import PinnedProcess, family, listens, wait_until
from benchmarks.systems.base import Role, SystemFailed, SystemUnavailable
from gateway.local.ports import free_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="benchmarks read /proc")

PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("started", child.pid, *os.sched_getaffinity(0), flush=True)
time.sleep(600)
"""


def python(code: str) -> list[str | Path]:
    return [sys.executable, "-c", code]


def a_core() -> int:
    return max(os.sched_getaffinity(0))


def test_a_program_and_its_children_have_one_core_and_end_together(tmp_path: Path) -> None:
    with PinnedProcess(python(PARENT), core=a_core(), folder=tmp_path) as process:
        process.wait_ready(lambda: "started" in process.last_output())
        _, child, core = map(str, process.last_output().split())
        pids = process.pids()
        assert pids == [process.pid, int(child)]
        assert int(core) == a_core()
        assert resident_bytes(pids) > resident_bytes(pids[:1]) > 0
        process.check()

    wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids), "all of it has ended")
    assert family(process.pid) == []


def test_what_a_failed_program_printed_is_in_the_error(tmp_path: Path) -> None:
    failing = python("import sys; sys.exit('the port is taken')")
    with (
        PinnedProcess(failing, core=a_core(), folder=tmp_path) as process,
        pytest.raises(SystemFailed, match="ended with 1: the port is taken"),
    ):
        process.wait_ready(lambda: False)


def test_a_program_that_ignores_the_request_to_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.processes.STOP_DEADLINE", 0.1)
    stubborn = python(
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    with PinnedProcess(stubborn, core=a_core(), folder=tmp_path) as process:
        process.wait_ready(lambda: "up" in process.last_output())

    assert process.process.returncode == -signal.SIGKILL


def test_a_missing_program_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(SystemUnavailable, match="no-such-program is not installed"):
        PinnedProcess(["no-such-program"], core=a_core(), folder=tmp_path)


def test_a_condition_that_does_not_come_true_names_itself() -> None:
    with pytest.raises(SystemFailed, match="the moon is full: not within"):
        wait_until(lambda: False, "the moon is full", within=0.05)


def test_a_free_port_is_free() -> None:
    assert not listens(free_port())


def test_cpu_time_is_what_a_process_used() -> None:
    """Busy for a while by our own account, and by /proc the same within two of its ticks."""
    roles = {Role.SERVER: [os.getpid()], Role.STORE: []}
    before, begin = cpu_by_role(roles), time.process_time()
    while time.process_time() - begin < 0.2:
        sum(range(1000))
    used = time.process_time() - begin
    found = cpu_between(before, cpu_by_role(roles))

    assert found[Role.SERVER] == pytest.approx(used, abs=0.05)
    assert found[Role.STORE] == 0


def test_a_process_that_is_gone_used_nothing() -> None:
    nobody = 2**22 + 1  # above the largest pid that Linux gives
    assert process_cpu(nobody) == 0
    assert resident_bytes([nobody]) == 0
    assert family(nobody) == []


def test_one_core_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    with pytest.raises(RuntimeError, match="two cores"):
        Placement.of_this_machine()
