"""``up`` leaves a stack running, mends it, and ``down`` stops exactly what was started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.local import detached
from gateway.local.identity import ProcessIdentity
from gateway.local.ports import PortPlan
from gateway.local.run_folder import StackState, StateUnreadable
from tests.support.times import scaled

STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in_node.py")))
UP = """
import asyncio, sys
from pathlib import Path
from gateway.local import detached
from gateway.local.ports import PortPlan
from gateway.local.stack import Stack
from gateway.local.recipes import StackOptions
folder = Path(sys.argv[2])
ports = PortPlan.from_base(int(sys.argv[1]), 2)
stack = Stack(StackOptions(ports=ports, folder=folder, detached=True, node_program=sys.argv[3:]))
print(*asyncio.run(detached.up(stack, folder)))
"""


def up(ports: PortPlan, folder: Path) -> list[str]:
    """Run ``up`` in a process of its own, which ends; returns what it started."""
    done = subprocess.run(
        [sys.executable, "-c", UP, str(ports.base), str(folder), *STAND_IN],
        capture_output=True,
        text=True,
        timeout=scaled(60),
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    detached.down(tmp_path)


def running(folder: Path) -> dict[str, ProcessIdentity]:
    state = StackState.read(folder)
    assert state is not None
    return state.alive()


@pytest.mark.redis
@pytest.mark.haproxy
def test_up_survives_its_process_and_down_stops_it(folder: Path) -> None:
    ports = PortPlan.free(2)

    assert set(up(ports, folder)) == {"redis", "n1", "n2", "haproxy"}
    processes = running(folder)
    assert set(processes) == {"redis", "n1", "n2", "haproxy"}

    assert set(detached.down(folder)) == set(processes)
    assert not any(identity.alive() for identity in processes.values())
    assert ports.taken() == ()
    assert detached.down(folder) == []


@pytest.mark.redis
@pytest.mark.haproxy
def test_up_again_starts_only_what_is_missing(folder: Path) -> None:
    ports = PortPlan.free(2)
    up(ports, folder)
    before = running(folder)
    assert up(ports, folder) == []

    before["n1"].stop(grace=0)
    before["redis"].stop(grace=0)
    assert set(up(ports, folder)) == {"redis", "n1"}

    after = running(folder)
    assert set(after) == set(before)
    assert {name for name in after if after[name] == before[name]} == {"n2", "haproxy"}


def test_down_leaves_a_process_alone_that_has_the_pid_of_one_of_ours(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as other:
        try:
            StackState(18_000, {"n1": ProcessIdentity(other.pid, "another boot:1")}).write(tmp_path)

            assert detached.down(tmp_path) == []
            assert other.poll() is None
            assert StackState.read(tmp_path) is None
        finally:
            other.send_signal(signal.SIGKILL)


def test_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    state = StackState(18_000, {"redis": ProcessIdentity(1, "a"), "n1": ProcessIdentity(2, "b")})

    state.write(tmp_path)

    assert StackState.read(tmp_path) == state


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"base": 1}', json.dumps({"base": 1, "processes": {"n1": 7}})]
)
def test_a_damaged_state_is_refused_with_a_remedy(tmp_path: Path, text: str) -> None:
    (tmp_path / "stack.json").write_text(text)

    with pytest.raises(StateUnreadable, match="by hand"):
        detached.down(tmp_path)
