"""Socket.IO 4 with the Redis Streams adapter and connection state recovery, on Node.js."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.systems.base import SystemFailed, SystemUnavailable
from benchmarks.systems.socketio_nodes import SocketIoNodes

SOURCES: Final = Path(__file__).parents[1] / "peers" / "socketio"

PACKAGE_FILES: Final = ("package.json", "package-lock.json")

SERVER: Final = "server.mjs"

STAMP: Final = ".installed"
"""A copy of the lock file, written last: other versions asked for mean another installation."""

INSTALL_SECONDS: Final = 300.0
"""For a slow line; it takes three seconds on a fast one."""

ACKNOWLEDGE: Final = "acknowledge"
"""Name of the setting that says when a publish is acknowledged."""

STORED: Final = "stored"
"""When Redis has told the adapter the entry's id: what the gateway promises too."""

RECEIVED: Final = "received"
"""At once, before anything is stored: all that Socket.IO's public API can do."""


class SocketIo(SocketIoNodes):
    """One Node.js process; updates go through a Redis stream, and a session is kept when its socket closes."""

    name: ClassVar[str] = "socketio"
    title: ClassVar[str] = "Socket.IO, Redis Streams adapter"
    knows: ClassVar[Mapping[str, str]] = {ACKNOWLEDGE: STORED}

    def __init__(self) -> None:
        self._folder: Path | None = None

    def prepare(self, folder: Path) -> None:
        """Install the locked npm packages into *folder*, unless they are there.

        Raises:
            SystemUnavailable: Node.js or npm is missing, or the packages cannot be had.
        """
        if shutil.which("node") is None or shutil.which("npm") is None:
            raise SystemUnavailable("node and npm are not installed; scripts/bench-packages does it")
        if not is_installed(folder):
            _install(folder)
        shutil.copy(SOURCES / SERVER, folder)
        self._folder = folder.resolve()

    def versions(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``."""
        if self._folder is None:
            raise SystemFailed(f"{self.name} was not prepared")
        wanted = json.loads((SOURCES / "package.json").read_text())["dependencies"]
        node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
        # `ws` does the WebSocket work and comes with Socket.IO.
        return {"node": node.strip().removeprefix("v")} | {
            name: json.loads((self._folder / "node_modules" / name / "package.json").read_text())["version"]
            for name in (*wanted, "ws")
        }

    def settings(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``; benchmarks/peers/README.md says more."""
        return {
            "transports": "websocket alone, no polling first",
            "perMessageDeflate": "off (its default)",
            "connectionStateRecovery": "on, 120 s",
            "adapter": "Redis Streams, onlyPlaintext: no search for binary values",
            "acknowledgement of a publish": "when the adapter has the entry's id from Redis",
            "request of the upgrade": "dropped, as its documentation advises to save memory",
        }

    def command(self, port: int, redis_url: str, extra: Mapping[str, str]) -> Sequence[str | Path]:
        """See ``SocketIoNodes``."""
        if self._folder is None:
            raise SystemFailed(f"{self.name} was not prepared")
        if extra[ACKNOWLEDGE] not in {STORED, RECEIVED}:
            raise SystemFailed(f"{ACKNOWLEDGE} is {STORED} or {RECEIVED}, not {extra[ACKNOWLEDGE]}")
        return ["node", self._folder / SERVER, str(port), redis_url, extra[ACKNOWLEDGE]]


def is_installed(folder: Path) -> bool:
    """Tell whether *folder* holds the packages that the lock file asks for."""
    stamp = folder / STAMP
    return stamp.exists() and stamp.read_bytes() == (SOURCES / "package-lock.json").read_bytes()


def _install(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for each in PACKAGE_FILES:
        shutil.copy(SOURCES / each, folder)
    try:
        subprocess.run(
            ["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"],
            cwd=folder,
            timeout=INSTALL_SECONDS,
            capture_output=True,
            text=True,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise SystemUnavailable(f"npm did not install the packages of Socket.IO in {INSTALL_SECONDS:.0f} s") from error
    except subprocess.CalledProcessError as error:
        raise SystemUnavailable(f"npm could not install the packages of Socket.IO: {error.stderr.strip()}") from error
    shutil.copy(SOURCES / "package-lock.json", folder / STAMP)
