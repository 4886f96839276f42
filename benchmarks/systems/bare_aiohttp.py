"""A minimal aiohttp WebSocket server on uvloop: the reference for handshakes and for memory per connection."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.placement import Placement
from benchmarks.processes import HOST, PinnedProcess, listens, scratch_folder
from benchmarks.systems.base import (
    TOPIC_MARK,
    Endpoint,
    Role,
    Running,
    StartOptions,
    SystemFailed,
    SystemUnderTest,
    WireProtocol,
)
from gateway.local.ports import free_port

SERVER: Final = Path(__file__).parents[1] / "peers" / "bare_aiohttp" / "server.py"

PACKAGES: Final = ("aiohttp", "uvloop")


class BareAiohttp(SystemUnderTest):
    """The gateway's own foundation without the gateway: what it adds is measured by this."""

    name: ClassVar[str] = "bare_aiohttp"
    title: ClassVar[str] = "bare aiohttp"

    def prepare(self, folder: Path) -> None:
        """See ``SystemUnderTest``; the gateway's own dependencies are all it needs."""

    def versions(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``."""
        return {"python": platform.python_version()} | {each: importlib.metadata.version(each) for each in PACKAGES}

    def settings(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``."""
        return {"event loop": "uvloop", "compress": "off, as in the gateway: on, it costs eight times the memory"}

    @contextlib.contextmanager
    def running(self, placement: Placement, options: StartOptions) -> Iterator[Running]:
        """See ``SystemUnderTest``."""
        if options.extra:
            raise SystemFailed(f"{self.name} knows no settings, but was given {sorted(options.extra)}")
        port = free_port()
        with (
            scratch_folder(self.name) as folder,
            PinnedProcess([sys.executable, SERVER, str(port)], core=placement.server, folder=folder) as process,
        ):
            process.wait_ready(lambda: listens(port))
            yield Running(
                endpoint=Endpoint(
                    protocol=WireProtocol.PLAIN,
                    host=HOST,
                    port=port,
                    subscribe_target=f"/sub?id={TOPIC_MARK}",
                    publish_target=f"/pub?id={TOPIC_MARK}",
                    publish_by_http=True,
                ),
                pids=lambda: {Role.SERVER: process.pids()},
                alive=process.check,
            )
