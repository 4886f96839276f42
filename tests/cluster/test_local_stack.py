"""The local stack and the demonstration with real nodes: what `make up` and `make demo` run."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
from rich.console import Console

from gateway.client import ConnectFailed, Session, connect
from gateway.core.wire.codes import RECOVERED
from gateway.local.checker import Verdict
from gateway.local.demo import Demo, DemoOptions
from gateway.local.narration import Narrator
from gateway.local.ports import PortPlan
from gateway.local.recipes import BACKED_UP, StackOptions
from gateway.local.stack import Stack
from tests.support.faults import cut_at_random_bytes, eventually, faulty
from tests.support.stack import cluster
from tests.support.times import time_limit

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.haproxy]


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with cluster(tmp_path, nodes=2) as stack:
        yield stack


async def outcomes(session: Session, count: int) -> list[str]:
    """Wait for the first recoveries of a session."""
    seen: list[str] = []
    async with time_limit(30):
        async for recovery in session.recoveries():
            seen.append(str(recovery.outcome))
            if len(seen) == count:
                break
    return seen


@pytest.mark.thorough
@pytest.mark.promise("P1")
async def test_a_session_survives_its_node(stack: Stack) -> None:
    async with connect(stack.url, principal="alice", properties={"team": "fx"}) as session:
        before = (session.id, session.node)
        await stack.kill_node(session.node)

        assert await outcomes(session, 1) == ["failed_over"]
        assert session.id == before[0]
        assert session.node != before[1]
        assert session.properties["team"] == "fx"


@pytest.mark.thorough
@pytest.mark.promise("P2")
async def test_a_session_survives_random_cuts_of_its_socket(stack: Stack) -> None:
    async with faulty(stack.url) as (url, proxy), connect(url) as session:
        stream = await session.subscribe("counts/*")
        stopping = asyncio.Event()

        async def count() -> int:
            number = 0
            while not stopping.is_set():
                number += 1
                await session.publish("counts/one", number)
            return number

        counting = asyncio.create_task(count())
        await cut_at_random_bytes(proxy, Random(7), times=8, most=600)
        await eventually(lambda: session.state == "connected", "the session is back")
        stopping.set()
        last = await counting
        seen = []
        async with time_limit(30):
            async for update in stream:
                seen.append(update.value)
                if update.value == last:
                    break

        assert seen == list(range(1, last + 1))


async def test_pages_of_this_machine_may_connect_and_no_others(stack: Stack) -> None:
    """As a developer's page does, from whatever port; through HAProxy."""
    for origin in ("http://localhost:5173", "http://127.0.0.1:18019", "http://[::1]:3000"):
        async with connect(stack.url, principal="alice", headers={"Origin": origin}) as session:
            assert session.principal == "alice"
    with pytest.raises(ConnectFailed, match="HTTP status 403"):
        await connect(stack.url, headers={"Origin": "https://evil.example"}, connect_timeout=2)

    def told() -> bool:
        return any("origin_refused" in stack.log_of(node).read_text() for node in stack.node_names)

    await eventually(told, "a node has logged which origin it refused")


async def demonstrate(folder: Path, **settings: object) -> tuple[Verdict, str]:
    text = io.StringIO()
    stack = Stack(StackOptions(ports=PortPlan.free(3), folder=folder, node_settings=settings))
    narrator = Narrator(Console(file=text, width=120, highlight=False))
    verdict = await Demo(stack, DemoOptions(sessions=12, rate=5), narrator).run()
    return verdict, text.getvalue()


@pytest.mark.promise("P1", "P2", "P5", "P6", "P7", "P10", "P12", "P13")
async def test_the_demonstration_keeps_every_promise(tmp_path: Path) -> None:
    verdict, told = await demonstrate(tmp_path, **BACKED_UP)

    assert verdict.passed, told
    assert verdict.sessions == 18
    assert {"reattached", "handed_over", "mirrored"} <= set(verdict.outcomes) <= set(RECOVERED)
    assert re.findall(r"(?m)^(\d)\. ", told) == list("1234567")
    assert "Every promise was kept" in told
    counted = re.findall(r"12 subscribers got ([\d,]+) of ([\d,]+) updates", told)
    assert len(counted) == 2, "after the kill, and after the deploy"
    assert all(came == due != "0" for came, due in counted)


@pytest.mark.thorough
@pytest.mark.promise("P1", "P12", "P13")
async def test_the_demonstration_keeps_them_without_backups(tmp_path: Path) -> None:
    verdict, told = await demonstrate(tmp_path)

    assert verdict.passed, told
    assert set(verdict.outcomes) == {"reattached", "handed_over", "failed_over"}
    assert verdict.replayed > 0


@pytest.mark.thorough
@pytest.mark.promise("P13")
async def test_the_demonstration_fails_if_one_update_is_missing(tmp_path: Path) -> None:
    """Nodes that replay nothing: who was away gets current values, and that is no kill without a loss."""
    verdict, told = await demonstrate(tmp_path, replay_events=0)

    assert not verdict.passed
    assert {violation.promise for violation in verdict.violations} == {"P13"}, told
    assert re.findall(r"(?m)^(\d)\. ", told) == list("12"), "what follows would only echo it"


@pytest.mark.thorough
async def test_the_demonstration_fails_if_sessions_are_not_replicated(tmp_path: Path) -> None:
    verdict, told = await demonstrate(tmp_path, replication=False)

    assert not verdict.passed
    assert {"P1", "P7"} <= {violation.promise for violation in verdict.violations}
    assert "Promises were broken" in told


@pytest.mark.thorough
def test_an_interrupted_demonstration_leaves_nothing(tmp_path: Path) -> None:
    ports = PortPlan.free(3)
    demo = subprocess.Popen(
        [sys.executable, "-m", "gateway.local", "demo", "--port-base", str(ports.base), "--sessions", "6"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert demo.stdout is not None
    with demo.stdout:
        for line in demo.stdout:
            if line.startswith("1. "):
                break
        # Not SIGINT: a child of a background job of a shell ignores that from its birth.
        demo.send_signal(signal.SIGTERM)
        rest = demo.stdout.read()

    assert demo.wait(30) == 143
    assert "Interrupted; everything was stopped." in rest
    assert ports.taken() == ()
