"""A private HAProxy for tests: on free ports of 127.0.0.1, with its own directory, always stopped in the end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.local.ports import free_port
from lb.errors import RuntimeSocketError
from lb.render import render
from lb.runtime import NodeStatus, RuntimeSocket
from lb.topology import Node, Topology, build
from tests.support.times import scaled

LOOPBACK: Final = "127.0.0.1"
START_DEADLINE: Final = scaled(10.0)
"""Seconds for HAProxy to start or to end; it needs some 50 ms."""

BIND_TRIES: Final = 5
"""Starts to try on new ports: between finding a free port and binding it, another test may take it."""

POLL_INTERVAL: Final = 0.02
"""Seconds between two looks at a condition; waiting is always for a condition, with a deadline."""

FAST: Final[Mapping[str, Any]] = {
    "timeouts": {"connect": scaled(0.5), "server": scaled(1.0), "server_fin": scaled(1.0)},
    "checks": {"interval": 0.1, "timeout": scaled(0.3), "fall": 2, "rise": 1, "agent_interval": 0.1},
}
"""Settings under which HAProxy finds out within tenths of seconds, so that tests are quick."""


def require_haproxy() -> str:
    """Find the program; without it skip the test, or fail it where ``CI`` is set, so that it is never skipped there."""
    program = shutil.which("haproxy")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("haproxy is not installed, and in CI no test may be skipped")
        pytest.skip("haproxy is not installed")
    return program


def free_ports(count: int) -> list[int]:
    """Find *count* different TCP ports of the loopback that nobody uses."""
    return [free_port() for _ in range(count)]


def wait_until(condition: Callable[[], bool], *, what: str) -> None:
    """Wait for a condition of another process.

    Args:
        condition: looked at every 20 ms.
        what: for the failure message.
    """
    end = time.monotonic() + START_DEADLINE
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"within {START_DEADLINE:g} s not: {what}")
        time.sleep(POLL_INTERVAL)


class HAProxy:
    """One HAProxy, master-less and in the foreground, in a process group of its own.

    Args:
        nodes: what stands behind it.
        settings: other settings of the topology; ports, socket and log are chosen here.
        extra: lines appended to the rendered configuration.
    """

    def __init__(self, nodes: Sequence[Node], settings: Mapping[str, Any] | None = None, *, extra: str = "") -> None:
        self._program = require_haproxy()
        # Not pytest's directory: the path of a unix socket must be short.
        self._directory = Path(tempfile.mkdtemp(prefix="haproxy-"))
        self._nodes = tuple(nodes)
        self._settings = dict(settings or FAST)
        self._extra = extra
        self._process: subprocess.Popen[bytes] | None = None
        self._old: list[subprocess.Popen[bytes]] = []
        self.topology = self._choose()
        self.runtime = RuntimeSocket(self.topology.runtime_socket)

    @property
    def port(self) -> int:
        """Port for clients."""
        return int(self.topology.frontend.bind[0].rpartition(":")[2])

    @property
    def statistics_port(self) -> int:
        """Port of ``/metrics`` and ``/stats``."""
        assert self.topology.statistics.bind is not None
        return int(self.topology.statistics.bind.rpartition(":")[2])

    @property
    def url(self) -> str:
        """Where a WebSocket client connects to, without the hint."""
        scheme = "wss" if self.topology.frontend.certificate else "ws"
        return f"{scheme}://{LOOPBACK}:{self.port}/v1/connect"

    @property
    def pid(self) -> int:
        """Of the current process."""
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        """Everything all its processes have written so far: log lines, alerts, warnings."""
        path = self._directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start and wait until it answers; on a port that was taken meanwhile, choose new ones and try again."""
        for _ in range(BIND_TRIES):
            self._process = self._spawn()
            if self._answers():
                return
            if "cannot bind socket" not in self.log():
                break
            (self._directory / "log").unlink()
            self.topology = self._choose()
        pytest.fail(f"haproxy did not start:\n{self.log()}")

    def reload(self, nodes: Sequence[Node] | None = None) -> None:
        """Replace the process by a new one that takes over the listening sockets; the old keeps its connections.

        Args:
            nodes: the nodes from now on; None for the same.
        """
        old = self._process
        assert old is not None
        if nodes is not None:
            self._nodes = tuple(nodes)
            self.topology = self.topology.model_copy(update={"nodes": self._nodes})
        self._process = self._spawn("-x", self.topology.runtime_socket, "-sf", str(old.pid))
        self._old.append(old)
        if not self._answers():
            pytest.fail(f"haproxy did not reload:\n{self.log()}")

    def kill(self) -> None:
        """Kill it, as a crash would; ``start`` starts it again on the same ports."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(START_DEADLINE)

    def stop(self) -> None:
        """End all its processes and delete its directory. Harmless if done already."""
        for process in [*self._old, *([self._process] if self._process else [])]:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(START_DEADLINE)
        shutil.rmtree(self._directory, ignore_errors=True)

    def node(self, name: str) -> NodeStatus:
        """What it thinks of a node now."""
        return self.runtime.node(name)

    def wait_for(self, name: str, condition: Callable[[NodeStatus], bool], *, what: str) -> None:
        """Wait until it thinks so of a node."""
        wait_until(lambda: condition(self.node(name)), what=f"{name} {what}")

    def wait_checked(self) -> None:
        """Wait until every node has been checked once and every agent has been asked once."""
        wait_until(
            lambda: all(status.check.status and status.agent.status for status in self.runtime.nodes()),
            what="every node checked",
        )

    def _choose(self) -> Topology:
        clients, statistics = free_ports(2)
        frontend = {"bind": [f"{LOOPBACK}:{clients}"]} | self._settings.get("frontend", {})
        return build(
            self._settings
            | {
                "nodes": self._nodes,
                "frontend": frontend,
                "statistics": {"bind": f"{LOOPBACK}:{statistics}"},
                "runtime_socket": str(self._directory / "socket"),
                "log": "stdout",
            },
            source="test",
        )

    def _spawn(self, *arguments: str) -> subprocess.Popen[bytes]:
        config = self._directory / "haproxy.cfg"
        config.write_text(render(self.topology) + self._extra)
        with (self._directory / "log").open("ab") as log:
            return subprocess.Popen(
                [self._program, "-db", "-f", str(config), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _answers(self) -> bool:
        """Wait until the current process answers, or ends."""
        process = self._process
        assert process is not None
        end = time.monotonic() + START_DEADLINE
        while process.poll() is None and time.monotonic() < end:
            try:
                if self.runtime.process()["Pid"] == str(process.pid):
                    return True
            except RuntimeSocketError:
                # Not there yet.
                pass
            time.sleep(POLL_INTERVAL)
        return False


@contextmanager
def running_haproxy(
    nodes: Sequence[Node], settings: Mapping[str, Any] | None = None, *, extra: str = ""
) -> Iterator[HAProxy]:
    """Run a private HAProxy for the length of a ``with`` block."""
    proxy = HAProxy(nodes, settings, extra=extra)
    try:
        proxy.start()
        yield proxy
    finally:
        proxy.stop()
