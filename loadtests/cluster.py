"""What a scenario does to the stack that ``make up`` left running: drain, restart, kill, hang.

Everything goes the way an operator goes: HAProxy is told through ``lb``'s runtime socket, nodes get signals, and what
is missing is started by ``make up``'s own command. Blocking calls; under locust they let other greenlets run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gateway.catalogue import log_events
from gateway.local.identity import ProcessIdentity
from gateway.local.ports import LOOPBACK, PortPlan
from gateway.local.run_folder import RunFolder, StackState
from lb.errors import LoadBalancerError
from lb.runtime import NodeStatus, RuntimeSocket, Takes, Wanted

SELECTOR: Final = "load/**"
"""The topics of all publishers: what subscribers select, and what readers read the history of."""

QUEUE: Final = "load-queue/work"
"""Where senders send to; nothing that subscribers select."""

HISTORY_AGE: Final = "10m"
"""For how long events are kept: longer than a reader is without a node."""

DRAIN_SECONDS: Final = 60.0
"""How long a drain may take: the node's own limit (30 s by default) and as much again."""
START_SECONDS: Final = 60.0
"""How long starting what is missing may take."""
BALANCED_SECONDS: Final = 20.0
"""How long HAProxy may take to see that a node is ready."""
_POLL_SECONDS: Final = 0.1
_NOT_NODES: Final = frozenset({"redis", "haproxy", "demo-page"})
"""The other parts of a stack, by their names in its state file."""
_SOCKET: Final = "haproxy.sock"


class ClusterFailed(Exception):
    """The stack did not do what was asked of it; the message says what, and where its log is."""


class LocalCluster:
    """The stack of one run folder.

    Args:
        folder: of the stack; relative to the working directory, as the path of a socket must be short.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runtime = RuntimeSocket(str(folder / _SOCKET))

    # --- What it is ---------------------------------------------------------------------------------------------------

    def parts(self) -> dict[str, ProcessIdentity]:
        """Return the processes that run, by name."""
        state = StackState.read(self.folder)
        return {} if state is None else state.alive()

    def nodes(self) -> list[str]:
        """Return the names of the nodes that run."""
        return sorted(name for name in self.parts() if name not in _NOT_NODES)

    def complaint(self) -> str | None:
        """Tell what is wrong with the stack before anything is done to it; None if all is well."""
        try:
            statuses = self._runtime.nodes()
        except LoadBalancerError as error:
            return str(error)
        bad = [f"{each.node} takes {each.takes}: {_state(each)}" for each in statuses if each.takes is not Takes.ALL]
        return "; ".join(bad) or None

    def busiest(self) -> str:
        """Return the node with the most connections.

        Raises:
            ClusterFailed: HAProxy does not tell.
        """
        return max(self._statuses(), key=lambda each: each.sessions).node

    # --- What is done to it -------------------------------------------------------------------------------------------

    def deploy(self, node: str) -> int:
        """Replace a node as a deploy does: ``lb drain``, SIGTERM, wait for its end, start, ``lb ready``.

        Returns:
            How many sessions the node had to close, because they did not follow its go-away.

        Raises:
            ClusterFailed: a step was not done in time.
        """
        position = self._log(node).stat().st_size
        self._tell(node, Wanted.DRAIN)
        try:
            identity = self._identity(node)
            identity.signal(signal.SIGTERM)
            self._until(lambda: not identity.alive(), DRAIN_SECONDS, f"{node} did not end after SIGTERM")
            left = self._left(node, position)
        finally:
            # Whatever went wrong, the stack is put right as far as that can be done.
            self.start_missing()
            self.ready(node)
        return left

    def kill(self, node: str) -> None:
        """Kill a node with SIGKILL."""
        self._identity(node).signal(signal.SIGKILL)

    def pause(self, node: str) -> None:
        """Make a node hang, its sockets open."""
        self._identity(node).signal(signal.SIGSTOP)

    def go_on(self, node: str) -> None:
        """Let a node that hangs go on."""
        self._identity(node).signal(signal.SIGCONT)

    def start_missing(self) -> None:
        """Start again what does not run.

        Raises:
            ClusterFailed: it could not be started.
        """
        state = StackState.read(self.folder)
        if state is None:
            raise ClusterFailed(f"no stack runs in {self.folder}")
        start(self.folder, base=state.base, nodes=len(self._statuses()))

    def ready(self, node: str) -> None:
        """Have HAProxy serve through a node again, and wait until it does.

        Raises:
            ClusterFailed: it did not in time.
        """
        self._tell(node, Wanted.READY)

        def takes_all() -> bool:
            return any(each.node == node and each.takes is Takes.ALL for each in self._statuses())

        self._until(takes_all, BALANCED_SECONDS, f"HAProxy did not find {node} ready")

    # --- Inside -------------------------------------------------------------------------------------------------------

    def _identity(self, node: str) -> ProcessIdentity:
        identity = self.parts().get(node)
        if identity is None:
            raise ClusterFailed(f"{node} does not run; see {self._log(node)}")
        return identity

    def _log(self, node: str) -> Path:
        return self.folder / "logs" / f"{node}.log"

    def _left(self, node: str, position: int) -> int:
        with self._log(node).open("rb") as log:
            log.seek(position)
            for line in log:
                if log_events.DRAIN_FINISHED.name.encode() in line:
                    return int(json.loads(line)["left"])
        raise ClusterFailed(f"{node} ended without finishing its drain; see {self._log(node)}")

    def _statuses(self) -> tuple[NodeStatus, ...]:
        try:
            return self._runtime.nodes()
        except LoadBalancerError as error:
            raise ClusterFailed(str(error)) from error

    def _tell(self, node: str, wanted: Wanted) -> None:
        try:
            self._runtime.set_wanted(node, wanted)
        except LoadBalancerError as error:
            raise ClusterFailed(str(error)) from error

    @staticmethod
    def _until(condition: Callable[[], bool], seconds: float, complaint: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() >= deadline:
                raise ClusterFailed(f"{complaint} within {seconds:g} s")
            time.sleep(_POLL_SECONDS)


def start(folder: Path, *, base: int, nodes: int) -> None:
    """Start what is missing of a stack, by the command of ``make up``.

    Args:
        folder: the run folder, ``.local/up-BASE`` of some directory.
        base: the first port.
        nodes: how many nodes.

    Raises:
        ClusterFailed: it could not be started; with what the command said.
    """
    _run_local("up", folder, "--port-base", str(base), "--nodes", str(nodes))


def declare(folder: Path, *, base: int) -> None:
    """Have a stack keep the history of what is published, and a queue, as an administrator does.

    Raises:
        ClusterFailed: a node did not take it; with what the command said.
    """
    (node,) = PortPlan.from_base(base, 1).nodes.values()
    to = ("--url", f"http://{LOOPBACK}:{node.admin}", "--token-file", str(RunFolder(folder.resolve()).admin_token))
    for said in ((SELECTOR, "history", "--age", HISTORY_AGE), (QUEUE, "queue")):
        _run("gateway", folder, "admin", "destination", "set", *said, *to)


def stop(folder: Path, *, base: int) -> None:
    """Stop a stack, by the command of ``make down``.

    Raises:
        ClusterFailed: it could not be stopped; with what the command said.
    """
    _run_local("down", folder, "--port-base", str(base))


def _run_local(command: str, folder: Path, *arguments: str) -> None:
    _run("gateway.local", folder, command, *arguments)


def _run(module: str, folder: Path, *arguments: str) -> None:
    root = Path(__file__).resolve().parents[1]
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-m", module, *arguments],
            # The command finds the run folder from the directory that holds `.local`.
            cwd=folder.resolve().parents[1],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])},
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ClusterFailed(f"`{module} {arguments[0]}` was not done within {START_SECONDS:g} s") from None
    if done.returncode:
        raise ClusterFailed(
            done.stderr.strip().removeprefix("error: ") or f"`{module} {arguments[0]}` failed with {done.returncode}"
        )


def _state(status: NodeStatus) -> str:
    wanted = "" if status.wanted is Wanted.READY else f"; `lb ready {status.node}` undoes `lb {status.wanted}`"
    return f"{'alive' if status.alive else 'not alive'}, {status.check.text or status.status}{wanted}"
