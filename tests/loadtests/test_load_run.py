"""`make load` as a whole: it starts a stack, plays a scenario on it, judges it, and leaves nothing behind.

Latencies are not judged here: this machine may be busy with other tests. What must happen, and what must not, is.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.local import detached
from gateway.local.ports import PortPlan
from gateway.local.processes import ProgramMissing, find_program
from gateway.local.run_folder import StackState
from tests.support.times import time_limit

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy]

ROOT: Final = Path(__file__).resolve().parents[2]
NODES: Final = 2
REQUESTS: Final = ("--askers", "2", "--handlers", "2")
SECONDS: Final = 120.0
"""For a whole run; it takes about 20."""
EVERY: Final = """
[every.at_most]
sessions_lost = 0
violations = 0
undeclared = 0
failure_ratio = 0
user_errors = 0
script_errors = 0
left_behind = 0
[every.at_least]
sessions = 23
accepted_share = 0.5
answered_share = 0.5
events_read = 1
throughput_share = 0.5
publish_share = 0.5
"""
STEADY: Final = "[steady.at_most]\nrecoveries = 0\n"
DEPLOY: Final = """
[rolling-deploy.at_most]
reattached_share = 0
not_replayed = 0
[rolling-deploy.at_least]
recoveries = 21
handed_over_share = 1
deployed = 2
completeness = 0.5
"""


@pytest.fixture(autouse=True)
def needed() -> None:
    try:
        for program in ("redis-server", "haproxy"):
            find_program(program)
    except ProgramMissing as missing:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"{missing}; CI must not skip tests", pytrace=False)
        pytest.skip(str(missing))


async def load(folder: Path, scenario: str, *options: str) -> tuple[int, str, dict[str, Any]]:
    """Run it and return its exit code, what it printed, and its figures."""
    base = PortPlan.free(NODES).base
    (folder / "slo.toml").write_text(EVERY + STEADY + DEPLOY)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loadtests", "--scenario", scenario, "--port-base", str(base), "--nodes", str(NODES)),
        *("--subscribers", "10", "--publishers", "2", "--publish-rate", "10", "--slo", "slo.toml"),
        *("--senders", "2", "--consumers", "3", "--readers", "2", "--callers", "2", *REQUESTS, *options),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    run = folder / ".local" / f"up-{base}"
    try:
        async with time_limit(SECONDS):
            printed, _ = await process.communicate()
        assert StackState.read(run) is None, "the stack was left running"
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()
        if run.exists():
            detached.down(run)
    text = printed.decode()
    verdict = folder / ".local" / f"load-{base}" / scenario / "verdict.json"
    assert verdict.exists(), text
    report = verdict.with_name("report.html").read_text()
    assert "objectives" in report
    assert "Traceback" not in text, text
    code = process.returncode
    assert code is not None
    figures: dict[str, Any] = json.loads(verdict.read_text())["figures"]
    return code, text, figures


@pytest.mark.thorough
async def test_a_rolling_deploy_meets_its_objectives(tmp_path: Path) -> None:
    """Two workers: the counts of both reach the process that judges."""
    code, text, figures = await load(tmp_path, "rolling-deploy", "--processes", "2", "--seconds", "12")
    assert code == 0, text
    assert "rolling-deploy: all" in text
    assert figures["sessions"] == 23
    assert figures["deployed"] == NODES
    assert figures["recoveries"] >= 23
    assert figures["reattached_share"] == figures["not_replayed"] == 0, "all moved, and nobody missed an update"
    assert figures["violations"] == figures["sessions_lost"] == 0
    assert figures["deliver_p99_ms"] is not None
    assert figures["redelivered"] == 0, "whoever is handed over keeps the messages that he holds"
    assert figures["read_p99_ms"] is not None
    assert figures["call_p99_ms"] is not None
    assert figures["request_p99_ms"] is not None


@pytest.mark.thorough
async def test_a_node_that_hangs_is_noticed(tmp_path: Path) -> None:
    code, text, figures = await load(tmp_path, "steady", "--sabotage", "hang", "--seconds", "13")
    assert code == 1, text
    assert "sabotage: " in text
    assert "MISSED" in text
    assert figures["recoveries"] > 0
    assert figures["script_errors"] == 0
