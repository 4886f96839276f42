"""The agent: one line per check, then it hangs up. What the lines do is tested on the real HAProxy."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import uvloop

from lb.agent import SHORTEST_PAUSE, AgentServer, AgentState
from tests.support.clock import eventually
from tests.support.haproxy import LOOPBACK
from tests.support.times import scaled


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def ask(port: int) -> bytes:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        return await asyncio.wait_for(reader.read(), timeout=scaled(5))
    finally:
        writer.close()
        await writer.wait_closed()


async def test_it_answers_with_the_state_of_the_moment() -> None:
    state = AgentState.READY
    async with AgentServer(LOOPBACK, 0, lambda: state) as agent:
        assert await ask(agent.port) == b"up 100%\n"
        state = AgentState.NOT_READY
        assert await ask(agent.port) == b"up 0%\n"
        state = AgentState.READY
        assert await asyncio.gather(*(ask(agent.port) for _ in range(20))) == [b"up 100%\n"] * 20


def test_it_answers_on_uvloop_too() -> None:
    """Nodes run on uvloop, whose transports are not subclasses of asyncio's."""

    async def once() -> bytes:
        async with AgentServer(LOOPBACK, 0, lambda: AgentState.READY) as agent:
            return await ask(agent.port)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(once()) == b"up 100%\n"


@pytest.mark.promise("P10")
@pytest.mark.parametrize("state", AgentState)
def test_no_answer_says_what_is_not_the_agents_to_say(state: AgentState) -> None:
    """``down`` would cut clients (P10); ``ready``, ``drain`` and ``maint`` would undo what the operator wants."""
    words = state.value.decode().split()

    assert not {word.partition("#")[0] for word in words} & {"down", "fail", "stopped", "ready", "drain", "maint"}
    assert words[0] == "up"
    assert state.value.endswith(b"\n")


async def test_a_state_that_raises_closes_the_connection_and_is_reported() -> None:
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def broken() -> AgentState:
        raise LookupError("bug")

    async with AgentServer(LOOPBACK, 0, broken) as agent:
        # Closed or reset, as the kernel likes.
        with contextlib.suppress(ConnectionResetError):
            assert await ask(agent.port) == b""

    assert isinstance(reported[0]["exception"], LookupError)


async def test_closed_it_listens_no_more() -> None:
    agent = AgentServer(LOOPBACK, 0, lambda: AgentState.READY)
    assert agent.port == 0
    await agent.start()
    port = agent.port
    with pytest.raises(RuntimeError, match="started already"):
        await agent.start()
    await agent.close()
    await agent.close()

    with pytest.raises(ConnectionRefusedError):
        await ask(port)


async def test_address_in_use() -> None:
    async with AgentServer(LOOPBACK, 0, lambda: AgentState.READY) as agent:
        other = AgentServer(LOOPBACK, agent.port, lambda: AgentState.READY)
        with pytest.raises(OSError, match="cannot be listened on: Address already in use"):
            await other.start()


def test_importing_the_agent_costs_a_node_nothing_else() -> None:
    script = "import sys, lb.agent; print([m for m in ('jinja2', 'pydantic', 'click', 'gateway') if m in sys.modules])"

    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=scaled(30)
    )

    assert shown.stdout == "[]\n"


@pytest.mark.parametrize(
    "said",
    [b"", b"down\n", b"maint\n", b"drain\n", b"up 0%\n", b"GET / HTTP/1.1\r\n\r\n", b"\x00\xff" * 100, b"x" * 3000],
    ids=repr,
)
async def test_whatever_is_said_to_it_is_not_read_and_changes_nothing(said: bytes) -> None:
    asked: list[tuple[object, ...]] = []

    def state(*arguments: object) -> AgentState:
        asked.append(arguments)
        return AgentState.READY

    async with AgentServer(LOOPBACK, 0, state) as agent:
        reader, writer = await asyncio.open_connection(LOOPBACK, agent.port)
        writer.write(said)
        assert await asyncio.wait_for(reader.read(), timeout=scaled(5)) == b"up 100%\n"
        writer.close()
        await writer.wait_closed()
        assert asked == [()], "the node's own state is all that is asked for"
        assert await ask(agent.port) == b"up 100%\n"


@pytest.mark.promise("P20")
async def test_nobody_can_hold_anything_open() -> None:
    """Connections that say nothing, say much, never read and never go: each is answered and closed at once."""
    async with AgentServer(LOOPBACK, 0, lambda: AgentState.READY) as agent:
        before = _descriptors()
        crowd = [socket.create_connection((LOOPBACK, agent.port)) for _ in range(600)]
        for number, each in enumerate(crowd[::2]):
            each.setblocking(False)
            # Some say more than is ever taken off the socket; it may be reset by then.
            with contextlib.suppress(ConnectionError, BlockingIOError):
                each.send(b"x" * (1000 if number % 2 else 1_000_000))

        assert await ask(agent.port) == b"up 100%\n"
        # Only the test's own ends are open: those of the agent are gone, though nobody has read or closed.
        await eventually(lambda: _descriptors() <= before + len(crowd))
        for each in crowd:
            each.close()


@pytest.mark.promise("P20")
@pytest.mark.parametrize(
    ("look", "pause"),
    [
        (0.001, 0.009),
        # A loop that counts in milliseconds would leave nothing to others.
        (0.00002, SHORTEST_PAUSE),
    ],
)
async def test_a_flood_gets_its_share_of_the_time_and_no_more(
    look: float, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time that it has answered, the agent leaves the loop to others for as long as its share demands."""
    pauses: list[tuple[float, float]] = []
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += look
        return now

    loop = asyncio.get_running_loop()
    async with AgentServer(LOOPBACK, 0, lambda: AgentState.READY) as agent:
        later = loop.call_later

        def call_later(delay: float, *rest: Any) -> asyncio.TimerHandle:
            pauses.append((now, delay))
            return later(0, *rest)

        monkeypatch.setattr("lb.agent.time.perf_counter", clock)
        monkeypatch.setattr(loop, "call_later", call_later)
        for _ in range(3):
            with socket.create_connection((LOOPBACK, agent.port)) as check:
                check.setblocking(False)
                assert await loop.sock_recv(check, 100) == b"up 100%\n"
        await eventually(lambda: len(pauses) >= 3)
        monkeypatch.undo()

    # Nine times what a look at the clock takes is left to others.
    assert {round(delay, 6) for _, delay in pauses} == {pause}
