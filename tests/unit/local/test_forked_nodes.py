"""Nodes that are forked for tests are processes like any other, and whatever is more than a node is started anew."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.local.identity import ProcessIdentity
from gateway.local.ports import free_port
from gateway.local.processes import ManagedProcess
from tests.support.faults import eventually
from tests.support.forked_nodes import SERVE, ForkedNodes, can_be
from tests.support.times import scaled

pytestmark = pytest.mark.skipif(not can_be(), reason="nodes are forked only on Linux")

HOST = "127.0.0.1"


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkedNodes]:
    launcher = ForkedNodes()
    monkeypatch.setattr(ManagedProcess, "launcher", launcher)
    yield launcher
    launcher.close()


def node(folder: Path, *options: str, **environment: str | None) -> ManagedProcess:
    """Describe a node whose grid is never there."""
    command = [*SERVE, "--dev", "--node", "n1", "--grid", f"redis://{HOST}:{free_port()}/0"]
    command += ["--listen", f"{HOST}:{free_port()}", "--admin", f"{HOST}:{free_port()}", *options]
    return ManagedProcess("n1", command, log=folder / "log", environment=environment, directory=folder)


def parent_of(process: ManagedProcess) -> int:
    return int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1])


def folder_of(process: ManagedProcess) -> Path:
    return Path(f"/proc/{process.pid}/cwd").readlink()


async def serves(process: ManagedProcess, *, starts: int = 1) -> None:
    """Wait until it has said so often that it has started."""

    async def has_started() -> bool:
        return process.log.read_text().count("node_started") >= starts

    await process.ready(has_started, timeout=scaled(60))


@pytest.mark.usefixtures("forked")
async def test_a_forked_node_leads_a_group_and_is_suspended_and_killed(tmp_path: Path) -> None:
    async with node(tmp_path) as process:
        await serves(process)
        assert parent_of(process) != os.getpid()
        assert os.getpgid(process.pid) == process.pid
        assert folder_of(process) == tmp_path

        process.pause()
        process.resume()
        await process.kill()
        assert process.exit_code == -signal.SIGKILL

        process.start()
        await serves(process, starts=2)
        assert await process.terminate(timeout=scaled(30)) == 0


@pytest.mark.usefixtures("forked")
async def test_its_settings_are_its_own(tmp_path: Path) -> None:
    """What a node is told by variables or flags, and what it says of them, is as if it had been started anew."""
    async with node(tmp_path, GATEWAY_LEASE="nonsense") as process:
        assert await process.wait(timeout=scaled(60)) == 2
        assert "GATEWAY_LEASE" in process.log_tail()
    async with node(tmp_path, "--strange") as process:
        assert await process.wait(timeout=scaled(60)) == 2
        assert "--strange" in process.log_tail()


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("name", ["LD_PRELOAD", "TZ", "PYTHONASYNCIODEBUG"])
async def test_a_node_with_other_variables_is_started_anew(tmp_path: Path, name: str) -> None:
    async with node(tmp_path) as first, node(tmp_path / "other", **{name: "0"}) as second:
        assert parent_of(first) != os.getpid()
        assert parent_of(second) == os.getpid()


@pytest.mark.usefixtures("forked")
async def test_other_programs_are_started_anew(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os; print(os.getppid())"]
    async with ManagedProcess("other", command, log=tmp_path / "log") as process:
        assert await process.wait(timeout=scaled(30)) == 0
    assert (tmp_path / "log").read_text() == f"{os.getpid()}\n"


async def test_no_node_outlives_what_it_is_forked_from(forked: ForkedNodes, tmp_path: Path) -> None:
    process = node(tmp_path)
    process.start()
    await serves(process)
    known = ProcessIdentity.of(process.pid)
    assert known is not None

    forked.close()

    await eventually(lambda: not known.alive(), "the node has ended")
    assert await process.wait(timeout=scaled(30)) == -signal.SIGKILL
