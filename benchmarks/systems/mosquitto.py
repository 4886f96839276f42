"""mosquitto with its WebSocket listener: MQTT 3.1.1, QoS 1, sessions that outlive their connection."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.processes import HOST
from benchmarks.systems.base import Endpoint, SystemUnavailable, WireProtocol
from benchmarks.systems.one_program import PEERS, OneProgram, Place, configured

TEMPLATE: Final = PEERS / "mosquitto" / "mosquitto.conf.template"

PROGRAM: Final = "mosquitto"

ADMINISTRATORS_PATH: Final = "/usr/local/sbin:/usr/sbin:/sbin"
"""Debian puts it where only root's PATH leads."""

QUEUED_MESSAGES: Final = 10_000
"""For each client. The default of 1,000 drops what a slow client has not taken, without telling it; no window of these
cases has more under way than this."""


class Mosquitto(OneProgram):
    """One broker. Sessions are kept in its memory: they outlive a connection, and end with the process."""

    name: ClassVar[str] = "mosquitto"
    title: ClassVar[str] = "mosquitto over WebSocket, QoS 1"

    def prepare(self, folder: Path) -> None:  # noqa: ARG002 - nothing to keep: it is packaged by the distribution
        """See ``SystemUnderTest``; the package itself comes by ``scripts/bench-packages``.

        Raises:
            SystemUnavailable: it is not installed.
        """
        found = shutil.which(PROGRAM, path=f"{os.environ.get('PATH', '')}:{ADMINISTRATORS_PATH}")
        if found is None:
            raise SystemUnavailable(f"{PROGRAM} is not installed; scripts/bench-packages does it")
        self._program = Path(found)

    def versions(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``."""
        # Its help, the only place that tells, comes with an exit code of 3.
        output = subprocess.run([self.program, "-h"], capture_output=True, text=True, check=False).stdout
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

    def command(self, place: Place) -> Sequence[str | Path]:
        """See ``OneProgram``."""
        values = {
            "port": place.port,
            "folder": place.folder,
            "queued": QUEUED_MESSAGES,
            "run_as_root": os.geteuid() == 0,
        }
        return [self.program, "-c", configured(place.folder / "mosquitto.conf", TEMPLATE, **values)]

    def endpoint(self, port: int) -> Endpoint:
        """See ``OneProgram``."""
        return Endpoint(WireProtocol.MQTT, HOST, port, "/mqtt", "/mqtt")
