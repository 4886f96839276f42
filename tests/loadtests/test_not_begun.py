"""`make load` where there is nothing to measure: it says why, with a code of its own, and judges nothing."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Final

import pytest

from gateway.adapters.authentication import HashParameters, hash_secret, users_line
from gateway.local.ports import LOOPBACK, free_port
from gateway.settings import StaticUsers
from loadtests import cluster
from loadtests.cluster import ClusterFailed
from tests.support.nodes import running_node
from tests.support.times import time_limit

pytestmark = pytest.mark.thorough

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS: Final = 60.0
"""For a run that is not begun: the start of locust, and the ten seconds for which it tries."""
NOT_BEGUN: Final = 2


async def load(folder: Path, url: str, *options: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Run it; returns its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loadtests", "--url", url, "--seconds", "5", *options),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with time_limit(SECONDS):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, printed.decode()


@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=["one process", "with workers"])
async def test_a_dead_gateway_is_no_missed_objective(tmp_path: Path, options: tuple[str, ...]) -> None:
    output = tmp_path / ".local" / "load-18000" / "steady"
    output.mkdir(parents=True)
    for left in ("report.html", "verdict.json"):
        (output / left).write_text("of an earlier run")
    url = f"ws://{LOOPBACK}:{free_port()}"

    code, text = await load(tmp_path, url, *options)

    assert code == NOT_BEGUN, text
    assert f"error: no session can be opened at {url}/v1/connect, so there is nothing to measure: " in text
    assert "refused" in text.lower()
    assert "MISSED" not in text
    assert "report:" not in text
    assert "Traceback" not in text
    assert list(output.iterdir()) == []


async def test_credentials_that_are_not_accepted_are_no_missed_objective(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(users_line("load", hash_secret("wonderland", HashParameters(2, 1, 1))))
    async with running_node(auth=StaticUsers(users)) as node:
        code, text = await load(tmp_path, node.url, environment={"LOADTEST_SECRET": "a-wrong-secret"})

    assert code == NOT_BEGUN, text
    assert "so there is nothing to measure" in text
    assert "a-wrong-secret" not in text


async def test_what_is_no_url_is_told(tmp_path: Path) -> None:
    code, text = await load(tmp_path, "gateway.example")

    assert code == NOT_BEGUN, text
    assert "error: 'gateway.example' is not a URL such as ws://127.0.0.1:8100" in text
    assert "Traceback" not in text


async def test_a_web_port_in_use_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        code, text = await load(tmp_path, "ws://gateway.example", "--ui", "--web-port", str(port))

    assert code == NOT_BEGUN, text
    assert f"port {port} of {LOOPBACK} is in use by another program" in text
    assert "Traceback" not in text
    assert "report:" not in text
    assert "Open http" not in text


@pytest.mark.parametrize(
    "option", [("--seconds", "-3"), ("--seconds", "nan"), ("--publishers", "-2"), ("--publish-rate", "0")]
)
async def test_numbers_that_make_no_run_are_told(tmp_path: Path, option: tuple[str, str]) -> None:
    async with running_node() as node:
        code, text = await load(tmp_path, node.url, *option)

    assert code == NOT_BEGUN, text
    assert f"argument {option[0]}: {option[1]} is not a number from" in text
    assert "Traceback" not in text


def test_what_the_local_stack_refuses_is_called_an_error_once(tmp_path: Path) -> None:
    with pytest.raises(ClusterFailed, match=r"^the port base must be 1 to"):
        cluster.start(tmp_path / ".local" / "up-99999", base=99_999, nodes=1)
