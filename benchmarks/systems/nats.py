"""nats-server with its WebSocket listener: core NATS, at most once."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.processes import HOST
from benchmarks.systems.base import Endpoint, SystemUnavailable, WireProtocol
from benchmarks.systems.one_program import PEERS, OneProgram, Place, configured

TEMPLATE: Final = PEERS / "nats" / "nats.conf.template"

PROGRAM: Final = "nats-server"


class Nats(OneProgram):
    """One server without JetStream: it keeps nothing, and a subscriber that was away has missed what was published.

    That is its fastest way, as nchan's memory is nchan's.
    """

    name: ClassVar[str] = "nats"
    title: ClassVar[str] = "NATS over WebSocket"

    def prepare(self, folder: Path) -> None:
        """Find the server that ``scripts/bench-packages`` built into *folder*, or else the distribution's.

        Raises:
            SystemUnavailable: there is neither.
        """
        built = folder / PROGRAM
        found = str(built) if built.exists() else shutil.which(PROGRAM)
        if found is None:
            raise SystemUnavailable(f"{PROGRAM} is not installed; scripts/bench-packages does it")
        self._program = Path(found)

    def versions(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``."""
        output = subprocess.run([self.program, "--version"], capture_output=True, text=True, check=True).stdout
        return {PROGRAM: output.strip().rpartition(" ")[2].removeprefix("v")}

    def settings(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``; benchmarks/peers/README.md says more."""
        return {
            "websocket": "no_tls, compression off (its default)",
            "JetStream": "off (its default): messages are kept nowhere, which is its fastest",
            "acknowledgement of a publish": "a flush: PONG to the PING behind it, as its clients do",
        }

    def command(self, place: Place) -> Sequence[str | Path]:
        """See ``OneProgram``."""
        return [self.program, "-c", configured(place.folder / "nats.conf", TEMPLATE, port=place.port)]

    def endpoint(self, port: int) -> Endpoint:
        """See ``OneProgram``."""
        return Endpoint(WireProtocol.NATS, HOST, port, "/", "/")
