"""Ours: one real node over a real Redis."""

from __future__ import annotations

import contextlib
import http.client
import importlib.metadata
import platform
import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.checkout import THIS, Checkout
from benchmarks.placement import Placement
from benchmarks.processes import HOST, PinnedProcess, redis_server, scratch_folder
from benchmarks.systems.base import Endpoint, Role, Running, StartOptions, SystemUnderTest, WireProtocol
from gateway import __version__
from gateway.local.ports import free_port

CONNECT_TARGET: Final = "/v1/connect"

BENCHMARK_SETTINGS: Final[Mapping[str, str]] = {
    "auth": "anonymous",
    "rate-packets": "0",
    "rate-bytes": "0",
    "log-level": "warning",
}
"""What cannot be left at its default: a publisher that saturates is what the rate limits are there to slow down."""

LIBRARIES: Final = ("aiohttp", "uvloop", "orjson", "redis", "hiredis")
"""Whose versions matter for speed."""

HTTP_TIMEOUT: Final = 1.0
"""Seconds for the answer of a node's readiness check."""


def node_arguments(
    name: str, *, port: int, admin: int, redis_port: int, extra: Mapping[str, str], checkout: Checkout = THIS
) -> Sequence[str]:
    """Return the command that runs a node the way benchmarks want it, token keys aside (``node_environment``).

    Args:
        name: of the node.
        port: for clients, on 127.0.0.1.
        admin: port for readiness and metrics.
        redis_port: of its grid.
        extra: more settings by their flag without dashes in front, such as ``{"ping-interval": "5"}``; nothing for a
            switch.
        checkout: the version that is run.
    """
    settings = {
        **BENCHMARK_SETTINGS,
        "node": name,
        "listen": f"{HOST}:{port}",
        "admin": f"{HOST}:{admin}",
        "grid": f"redis://{HOST}:{redis_port}/0",
        **extra,
    }
    return checkout.command(settings)


def node_environment() -> dict[str, str]:
    """Return the environment of nodes that have to accept each other's tokens."""
    return {"GATEWAY_TOKEN_KEYS": secrets.token_hex(32)}


def is_ready(admin: int) -> bool:
    """Tell whether the node with that admin port says that it is ready for clients."""
    connection = http.client.HTTPConnection(HOST, admin, timeout=HTTP_TIMEOUT)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False


class GatewayNode(SystemUnderTest):
    """One node: publishes and deliveries pass through it, and through Redis in between.

    Args:
        checkout: the version that is run.
    """

    name: ClassVar[str] = "gateway"
    title: ClassVar[str] = "session gateway"

    def __init__(self, checkout: Checkout = THIS) -> None:
        self._checkout = checkout

    def prepare(self, folder: Path) -> None:
        """See ``SystemUnderTest``; it is here already."""

    def versions(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``."""
        return {
            "gateway": __version__,
            "python": platform.python_version(),
            **{each: importlib.metadata.version(each) for each in LIBRARIES},
            "redis-server": redis_version(),
        }

    def settings(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``."""
        return {**BENCHMARK_SETTINGS, "grid": "redis://, AOF and snapshots off, as for every system with a Redis"}

    @contextlib.contextmanager
    def running(self, placement: Placement, options: StartOptions) -> Iterator[Running]:
        """See ``SystemUnderTest``."""
        port, admin = free_port(), free_port()
        with scratch_folder(self.name) as folder, redis_server(placement.others) as (redis, redis_port):
            arguments = node_arguments(
                "n1", port=port, admin=admin, redis_port=redis_port, extra=options.extra, checkout=self._checkout
            )
            environment = node_environment() | self._checkout.environment()
            with PinnedProcess(arguments, core=placement.server, folder=folder, environment=environment) as node:
                node.wait_ready(lambda: is_ready(admin))

                def alive() -> None:
                    node.check()
                    redis.check()

                yield Running(
                    endpoint=Endpoint(WireProtocol.GATEWAY, HOST, port, CONNECT_TARGET, CONNECT_TARGET),
                    pids=lambda: {Role.SERVER: node.pids(), Role.STORE: redis.pids()},
                    alive=alive,
                )


def redis_version() -> str:
    """Tell the version of the redis-server on the PATH."""
    output = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout
    return output.partition("v=")[2].partition(" ")[0]
