"""A minimal aiohttp WebSocket server on uvloop: the reference for handshakes and for memory per connection."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.systems.base import Endpoint
from benchmarks.systems.one_program import PEERS, OneProgram, Place, plain_endpoint

SERVER: Final = PEERS / "bare_aiohttp" / "server.py"

PACKAGES: Final = ("aiohttp", "uvloop")


class BareAiohttp(OneProgram):
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

    def command(self, place: Place) -> Sequence[str | Path]:
        """See ``OneProgram``."""
        return [sys.executable, SERVER, str(place.port)]

    def endpoint(self, port: int) -> Endpoint:
        """See ``OneProgram``."""
        return plain_endpoint(port)
