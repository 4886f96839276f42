"""mosquitto with its WebSocket listener: MQTT 3.1.1, QoS 1, sessions that outlive their connection."""

from __future__ import annotations

import contextlib
import os
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

TEMPLATE: Final = Path(__file__).parents[1] / "peers" / "mosquitto" / "mosquitto.conf.template"

PROGRAM: Final = "mosquitto"

ADMINISTRATORS_PATH: Final = "/usr/local/sbin:/usr/sbin:/sbin"
"""Debian puts it where only root's PATH leads."""

QUEUED_MESSAGES: Final = 10_000
"""For each client. The default of 1,000 drops what a slow client has not taken, without telling it; no window of these
cases has more under way than this."""


class Mosquitto(SystemUnderTest):
    """One broker. Sessions are kept in its memory: they outlive a connection, and end with the process."""

    name: ClassVar[str] = "mosquitto"
    title: ClassVar[str] = "mosquitto over WebSocket, QoS 1"

    def __init__(self) -> None:
        self._program: str | None = None

    def prepare(self, folder: Path) -> None:  # noqa: ARG002 - nothing to keep: it is packaged by the distribution
        """See ``SystemUnderTest``; the package itself comes by ``scripts/bench-packages``.

        Raises:
            SystemUnavailable: it is not installed.
        """
        self._program = shutil.which(PROGRAM, path=f"{os.environ.get('PATH', '')}:{ADMINISTRATORS_PATH}")
        if self._program is None:
            raise SystemUnavailable(f"{PROGRAM} is not installed; scripts/bench-packages does it")

    def versions(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``."""
        # Its help, the only place that tells, comes with an exit code of 3.
        output = subprocess.run([self._found(), "-h"], capture_output=True, text=True, check=False).stdout
        return {PROGRAM: output.splitlines()[0].rpartition(" ")[2]}

    def settings(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``; benchmarks/peers/README.md says more."""
        return {
            "sessions": "kept (clean session 0), QoS 1 both ways",
            "persistence": "off: sessions are kept in memory, as Redis here writes nothing to disk",
            "set_tcp_nodelay": "on, as in all the others",
            "max_inflight_messages": "0, no bound: a subscriber need not confirm before it gets more",
            "max_queued_messages": f"{QUEUED_MESSAGES}, so that none is dropped",
        }

    @contextlib.contextmanager
    def running(self, placement: Placement, options: StartOptions) -> Iterator[Running]:
        """See ``SystemUnderTest``."""
        program = self._found()
        if options.extra:
            raise SystemFailed(f"{self.name} knows no settings, but was given {sorted(options.extra)}")
        port = free_port()
        with scratch_folder(self.name) as folder:
            configuration = folder / "mosquitto.conf"
            template = jinja2.Template(TEMPLATE.read_text(), undefined=jinja2.StrictUndefined)
            configuration.write_text(
                template.render(port=port, folder=folder, queued=QUEUED_MESSAGES, run_as_root=os.geteuid() == 0)
            )
            with PinnedProcess([program, "-c", configuration], core=placement.server, folder=folder) as process:
                process.wait_ready(lambda: listens(port))
                yield Running(
                    endpoint=Endpoint(WireProtocol.MQTT, HOST, port, "/mqtt", "/mqtt"),
                    pids=lambda: {Role.SERVER: process.pids()},
                    alive=process.check,
                )

    def _found(self) -> str:
        if self._program is None:
            raise SystemFailed(f"{self.name} was not prepared")
        return self._program
