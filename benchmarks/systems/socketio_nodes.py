"""What the two Socket.IO peers have in common: servers of one kind that share a Redis."""

from __future__ import annotations

import contextlib
import functools
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.placement import Placement
from benchmarks.processes import HOST, PinnedProcess, listens, redis_server, scratch_folder
from benchmarks.systems.base import (
    Endpoint,
    Role,
    Running,
    StartOptions,
    SystemFailed,
    SystemUnderTest,
    WireProtocol,
)
from gateway.local.ports import free_port

REQUEST_TARGET: Final = "/socket.io/?EIO=4&transport=websocket"
"""The same for subscribers and publishers: topics are named in events, not in the target."""


@dataclass(frozen=True)
class Node:
    """One server of a cluster.

    Attributes:
        endpoint: where it is reached.
        process: it; ``process.signal(signal.SIGKILL)`` is how a case kills it.
    """

    endpoint: Endpoint
    process: PinnedProcess


@dataclass(frozen=True)
class Cluster:
    """Servers that share a Redis.

    Attributes:
        nodes: in the order of their start.
        redis: the process they share.
        redis_port: where it listens.
    """

    nodes: Sequence[Node]
    redis: PinnedProcess
    redis_port: int

    def pids(self) -> Mapping[Role, Sequence[int]]:
        """Tell the live processes of each role."""
        servers = [pid for node in self.nodes if node.process.process.poll() is None for pid in node.process.pids()]
        return {Role.SERVER: servers, Role.STORE: self.redis.pids()}

    def check(self) -> None:
        """Raise ``SystemFailed`` if a process has ended."""
        for process in (*(node.process for node in self.nodes), self.redis):
            process.check()


class SocketIoNodes(SystemUnderTest):
    """A Socket.IO server program that can run once or several times with one Redis.

    Attributes:
        knows: names that ``StartOptions.extra`` may hold, with their default values.
    """

    knows: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def command(self, port: int, redis_url: str, extra: Mapping[str, str]) -> Sequence[str | Path]:
        """Tell how one server is started.

        Args:
            port: to listen on, on 127.0.0.1.
            redis_url: of the Redis that it shares with the others.
            extra: a value for each name in ``knows``.
        """

    @contextlib.contextmanager
    def running(self, placement: Placement, options: StartOptions) -> Iterator[Running]:
        """See ``SystemUnderTest``."""
        with self.cluster(placement, options, size=1) as cluster:
            yield Running(endpoint=cluster.nodes[0].endpoint, pids=cluster.pids, alive=cluster.check)

    @contextlib.contextmanager
    def cluster(self, placement: Placement, options: StartOptions, *, size: int) -> Iterator[Cluster]:
        """Run *size* servers with one Redis for the length of the block; all servers share one core.

        Raises:
            SystemFailed: one did not come up, or ``options.extra`` names what is not known.
        """
        unknown = options.extra.keys() - self.knows.keys()
        if unknown:
            raise SystemFailed(f"{self.name} does not know the settings {sorted(unknown)}")
        extra = {**self.knows, **options.extra}
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(scratch_folder(self.name))
            redis, redis_port = stack.enter_context(redis_server(placement.others))
            nodes = []
            for _ in range(size):
                endpoint = _endpoint(free_port())
                command = self.command(endpoint.port, f"redis://{HOST}:{redis_port}/0", extra)
                process = stack.enter_context(PinnedProcess(command, core=placement.server, folder=folder))
                process.wait_ready(functools.partial(listens, endpoint.port))
                nodes.append(Node(endpoint, process))
            yield Cluster(nodes, redis, redis_port)


def _endpoint(port: int) -> Endpoint:
    return Endpoint(
        protocol=WireProtocol.SOCKET_IO,
        host=HOST,
        port=port,
        subscribe_target=REQUEST_TARGET,
        publish_target=REQUEST_TARGET,
    )
