"""The local stack with real Redis and HAProxy and stand-ins for nodes: starts, hurts, restarts and leaves nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import redis.asyncio

from gateway.local.grid_server import GridRestart
from gateway.local.identity import ProcessIdentity
from gateway.local.ports import PortPlan, PortsTaken
from gateway.local.processes import ProcessFailed, ProgramMissing, find_program
from gateway.local.recipes import StackOptions
from gateway.local.run_folder import StackState
from gateway.local.stack import Stack
from tests.support.faults import eventually
from tests.support.times import scaled

pytestmark = [pytest.mark.redis, pytest.mark.haproxy]

STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in_node.py")))


def options(folder: Path, **more: object) -> StackOptions:
    settings: dict[str, object] = {"ports": PortPlan.free(2), "folder": folder, "node_program": STAND_IN, **more}
    return StackOptions(**settings)  # type: ignore[arg-type]


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with Stack(options(tmp_path / "run")) as stack:
        yield stack


def names_in(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


async def greeting(url: str) -> str:
    """Connect as a client and read which node answered."""
    async with aiohttp.ClientSession() as http, http.ws_connect(url) as socket:
        return str(await socket.receive_str(timeout=scaled(10)))


async def command(stack: Stack, *words: str) -> object:
    client = redis.asyncio.Redis.from_url(stack.grid_url, decode_responses=True)
    try:
        return await client.execute_command(*words)  # type: ignore[no-untyped-call]
    finally:
        await client.aclose()


async def is_written(stack: Stack) -> bool:
    about = await command(stack, "INFO", "persistence")
    assert isinstance(about, dict)
    return int(about["aof_buffer_length"]) == 0


async def test_clients_reach_nodes_through_haproxy_and_by_their_hint(stack: Stack) -> None:
    assert await greeting(stack.url) in {"n1", "n2"}
    assert await greeting(f"{stack.url}?node=n2") == "n2"
    assert await greeting(f"{stack.url}?node=n1") == "n1"
    assert await greeting(stack.node_url("n2")) == "n2"


async def test_urls_and_metrics(stack: Stack) -> None:
    base = stack.options.ports.base

    assert stack.node_names == ("n1", "n2")
    assert stack.url == f"ws://127.0.0.1:{base}/v1/connect"
    assert stack.grid_url == f"redis://127.0.0.1:{base + 2}/0"
    assert stack.admin_url("n2", "/healthz") == f"http://127.0.0.1:{base + 22}/healthz"
    assert await stack.metrics("n1") == {'gateway_sessions{state="connected"}': 3.0, "up": 1.0}
    assert stack.runtime_socket.is_socket()


async def test_the_run_folder_holds_everything_and_keys_are_private(stack: Stack, tmp_path: Path) -> None:
    run = tmp_path / "run"

    assert stat.S_IMODE((run / "token-keys").stat().st_mode) == 0o600
    assert names_in(run / "logs") == {"redis.log", "haproxy.log", "n1.log", "n2.log"}
    assert "serving n1" in stack.log_of("n1").read_text()


async def test_a_killed_node_is_left_by_haproxy_and_comes_back(stack: Stack) -> None:
    await stack.kill_node("n1")

    assert stack.nodes["n1"].exit_code == -signal.SIGKILL
    assert await greeting(f"{stack.url}?node=n1") == "n2"
    await stack.balanced(["n2"])

    await stack.start_node("n1", window_default=7)
    await stack.balanced()
    assert await greeting(f"{stack.url}?node=n1") == "n1"
    assert "serving n1 7" in stack.log_of("n1").read_text()


async def test_a_paused_node_is_left_by_haproxy_and_comes_back(stack: Stack) -> None:
    stack.pause_node("n2")
    await stack.balanced(["n1"])
    assert await greeting(f"{stack.url}?node=n2") == "n1"

    stack.resume_node("n2")

    await stack.balanced()
    assert await greeting(f"{stack.url}?node=n2") == "n2"


async def test_draining_gives_the_exit_code(stack: Stack) -> None:
    assert await stack.drain_node("n1") == 0


async def test_starting_a_running_node_is_refused(stack: Stack) -> None:
    with pytest.raises(ProcessFailed, match="n1 runs already"):
        await stack.start_node("n1")


async def test_haproxy_restarts(stack: Stack) -> None:
    assert stack.balancer is not None
    before = stack.balancer.pid

    await stack.restart_haproxy()

    assert stack.balancer.pid != before
    assert await greeting(f"{stack.url}?node=n2") == "n2"


async def test_redis_restarts_as_it_was_older_and_empty(stack: Stack) -> None:
    await command(stack, "SET", "key", "old")
    await stack.save_grid()
    await command(stack, "SET", "key", "new")
    await eventually(lambda: is_written(stack), "it is in the file, which Redis puts off while the disk is busy")

    await stack.restart_redis(GridRestart.AS_IT_WAS)
    assert await command(stack, "GET", "key") == "new"

    await stack.restart_redis(GridRestart.OLDER)
    assert await command(stack, "GET", "key") == "old"

    await stack.restart_redis(GridRestart.EMPTY)
    assert await command(stack, "GET", "key") is None


async def test_an_unknown_snapshot_leaves_redis_alone(stack: Stack) -> None:
    before = stack.grid.process.pid

    with pytest.raises(FileNotFoundError, match="'monday'"):
        await stack.restart_redis(GridRestart.OLDER, snapshot="monday")

    assert stack.grid.process.pid == before


async def test_the_grid_proxy_stands_between_nodes_and_redis(tmp_path: Path) -> None:
    async with Stack(options(tmp_path, grid_proxy=True, balancer=False)) as stack:
        assert stack.grid_proxy is not None
        assert f"redis://127.0.0.1:{stack.grid_proxy.port}/0" in stack.nodes["n1"].command
        with pytest.raises(ValueError, match="no HAProxy"):
            await stack.restart_haproxy()
        with pytest.raises(ValueError, match="no HAProxy"):
            await stack.balanced()


async def test_every_link_can_fail_alone(tmp_path: Path) -> None:
    async with Stack(options(tmp_path, link_proxies=True)) as stack:
        assert stack.links is not None
        assert f"redis://127.0.0.1:{stack.links.grid['n1'].port}/0" in stack.nodes["n1"].command
        assert set(stack.links.by_name()) == {"clients", "n1", "n2", "n1-grid", "n2-grid"}
        assert await greeting(f"{stack.links.url}?node=n1") == "n1"
        stack.links.nodes["n1"].refuse()
        assert await greeting(f"{stack.links.url}?node=n1") == "n2"


async def test_a_reload_of_haproxy_refuses_nobody_and_keeps_what_is_open(stack: Stack) -> None:
    assert stack.balancer is not None
    old = stack.balancer
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{stack.url}?node=n1") as socket:
        stack.reload_haproxy()
        for _ in range(20):
            assert await greeting(stack.url) in {"n1", "n2"}
        await stack.balanced()
        assert stack.balancer.pid != old.pid
        assert await socket.receive_str(timeout=scaled(10)) == "n1"
    await stack.restart_haproxy()
    assert await greeting(stack.url) in {"n1", "n2"}
    await stack.stop()
    assert not old.running


async def test_a_node_is_launched_without_waiting_for_it(stack: Stack) -> None:
    await stack.kill_node("n1")
    stack.launch_node("n1")
    with pytest.raises(ProcessFailed, match="n1 runs already"):
        stack.launch_node("n1")
    await stack.ready("n1")


async def test_a_node_that_does_not_come_up_stops_the_rest_and_says_why(tmp_path: Path) -> None:
    stack = Stack(options(tmp_path, node_settings={"log_level": "fail"}))

    with pytest.raises(ProcessFailed, match="configuration: log_level = fail"):
        await stack.start()

    assert not stack.grid.process.running
    assert not any(node.running for node in stack.nodes.values())


async def test_taken_ports_are_named(stack: Stack, tmp_path: Path) -> None:
    second = Stack(options(tmp_path / "second", ports=stack.options.ports))

    with pytest.raises(PortsTaken, match=rf"port {stack.options.ports.base}, .*PORT_BASE="):
        await second.start()


async def test_stopping_leaves_nothing(tmp_path: Path) -> None:
    async with Stack(options(tmp_path)) as stack:
        state = StackState.read(tmp_path)
        assert state is not None
        assert set(state.alive()) == {"redis", "haproxy", "n1", "n2"}

    assert state.alive() == {}
    assert StackState.read(tmp_path) is None
    assert stack.options.ports.taken() == ()


async def test_what_runs_is_killed_at_once_where_nothing_can_be_waited_for(tmp_path: Path) -> None:
    async with Stack(options(tmp_path)) as stack:
        state = StackState.read(tmp_path)
        assert state is not None
        await stack.nodes["n2"].kill()

        assert set(stack.kill_now()) == {"redis", "haproxy", "n1"}

        assert state.alive() == {}
        assert stack.kill_now() == []


async def test_a_detached_stack_is_released_and_found_by_its_state(tmp_path: Path) -> None:
    stack = Stack(options(tmp_path, detached=True))
    await stack.start()
    children = [process._child for process in stack._processes()]
    stack.release()

    state = StackState.read(tmp_path)
    assert state is not None
    try:
        assert next(iter(state.processes)) == "redis"
        assert all(isinstance(identity, ProcessIdentity) for identity in state.alive().values())
        assert len(state.alive()) == 4
    finally:
        for identity in state.processes.values():
            identity.signal(signal.SIGKILL)
        for child in children:
            assert child is not None
            await asyncio.to_thread(os.waitpid, child.pid, 0)


def test_a_detached_stack_has_no_fault_proxy(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="detached"):
        options(tmp_path, detached=True, grid_proxy=True)
    with pytest.raises(ValueError, match="detached"):
        options(tmp_path, detached=True, link_proxies=True)


def test_links_are_not_proxied_twice_and_lead_somewhere(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not through both"):
        options(tmp_path, grid_proxy=True, link_proxies=True)
    with pytest.raises(ValueError, match="this stack has none"):
        options(tmp_path, balancer=False, link_proxies=True)


async def test_clearing_removes_what_a_run_left_and_nothing_else(tmp_path: Path) -> None:
    async with Stack(options(tmp_path)) as stack:
        (tmp_path / "mine").write_text("keep")

    stack.clear()

    assert names_in(tmp_path) == {"mine"}


async def test_settings_of_the_caller_do_not_reach_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_WINDOW_DEFAULT", "99")
    async with Stack(options(tmp_path, balancer=False)) as stack:
        assert "serving n1 None" in stack.log_of("n1").read_text()


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(ProgramMissing, match="no-such-server is not installed"):
        find_program("no-such-server")


async def test_a_process_that_ends_while_its_state_is_written_is_left_out(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = stack.nodes["n1"]
    monkeypatch.setattr(type(node), "running", property(lambda process: True))
    os.kill(node.pid, signal.SIGKILL)
    # It is gone but for its exit code, which nobody has asked for.
    while ProcessIdentity.of(node.pid) is not None:
        os.sched_yield()
    stack._write_state()
    state = StackState.read(tmp_path / "run")
    assert state is not None
    assert "n1" not in state.processes
