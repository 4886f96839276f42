"""python-socketio on aiohttp and uvloop, with its Redis manager."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.systems.base import SystemUnavailable
from benchmarks.systems.socketio_nodes import SocketIoNodes

SERVER: Final = Path(__file__).parents[1] / "peers" / "python_socketio" / "server.py"

PACKAGES: Final = ("python-socketio", "python-engineio", "aiohttp", "uvloop", "orjson", "redis")


class PythonSocketIo(SocketIoNodes):
    """One Python process; updates go through Redis pub/sub. It has no recovery of sessions to switch on."""

    name: ClassVar[str] = "python_socketio"
    title: ClassVar[str] = "python-socketio, Redis manager"

    def prepare(self, folder: Path) -> None:  # noqa: ARG002 - it is installed with the benchmarks' dependencies
        """See ``SystemUnderTest``.

        Raises:
            SystemUnavailable: it is not installed.
        """
        if importlib.util.find_spec("socketio") is None:
            raise SystemUnavailable("python-socketio is not installed; `pip install --group bench` does it")

    def versions(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``."""
        return {"python": platform.python_version()} | {each: importlib.metadata.version(each) for each in PACKAGES}

    def settings(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``; benchmarks/peers/README.md says more."""
        return {
            "transports": "websocket alone, no polling first",
            "event loop": "uvloop",
            "async_handlers": "off: events in order and without a task for each",
            "json": "orjson, which is 5 % faster here than the standard library's",
            "client manager": "Redis pub/sub",
            "acknowledgement of a publish": "when Redis has taken the message to pass it on; nothing is stored",
        }

    def command(self, port: int, redis_url: str, extra: Mapping[str, str]) -> Sequence[str | Path]:  # noqa: ARG002
        """See ``SocketIoNodes``."""
        return [sys.executable, SERVER, str(port), redis_url]
