"""nats-server with its WebSocket listener: core NATS, at most once."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Final

import jinja2

from benchmarks.placement import Placement
from benchmarks.processes import HOST, PinnedProcess, listens, scratch_folder
from benchmarks.systems.base import (
    Endpoint,
    Role,
    Running,
    StartOptions,
    SystemFailed,
    SystemUnavailable,
    SystemUnderTest,
    WireProtocol,
)
from gateway.local.ports import free_port

TEMPLATE: Final = Path(__file__).parents[1] / "peers" / "nats" / "nats.conf.template"

PROGRAM: Final = "nats-server"


class Nats(SystemUnderTest):
    """One server without JetStream: it keeps nothing, and a subscriber that was away has missed what was published.

    That is its fastest way, as nchan's memory is nchan's.
    """

    name: ClassVar[str] = "nats"
    title: ClassVar[str] = "NATS over WebSocket"

    def __init__(self) -> None:
        self._program: Path | None = None

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
        output = subprocess.run([self._found(), "--version"], capture_output=True, text=True, check=True).stdout
        return {PROGRAM: output.strip().rpartition(" ")[2].removeprefix("v")}

    def settings(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``; benchmarks/peers/README.md says more."""
        return {
            "websocket": "no_tls, compression off (its default)",
            "JetStream": "off (its default): messages are kept nowhere, which is its fastest",
            "acknowledgement of a publish": "a flush: PONG to the PING behind it, as its clients do",
        }

    @contextlib.contextmanager
    def running(self, placement: Placement, options: StartOptions) -> Iterator[Running]:
        """See ``SystemUnderTest``."""
        program = self._found()
        if options.extra:
            raise SystemFailed(f"{self.name} knows no settings, but was given {sorted(options.extra)}")
        port = free_port()
        with scratch_folder(self.name) as folder:
            configuration = folder / "nats.conf"
            template = jinja2.Template(TEMPLATE.read_text(), undefined=jinja2.StrictUndefined)
            configuration.write_text(template.render(port=port))
            with PinnedProcess([program, "-c", configuration], core=placement.server, folder=folder) as process:
                process.wait_ready(lambda: listens(port))
                yield Running(
                    endpoint=Endpoint(WireProtocol.NATS, HOST, port, "/", "/"),
                    pids=lambda: {Role.SERVER: process.pids()},
                    alive=process.check,
                )

    def _found(self) -> Path:
        if self._program is None:
            raise SystemFailed(f"{self.name} was not prepared")
        return self._program
