"""nats-server with JetStream, which keeps messages: what queues and histories are measured beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from benchmarks.processes import HOST
from benchmarks.systems.base import Endpoint
from benchmarks.systems.nats import Nats
from benchmarks.systems.one_program import Place


class JetStream(Nats):
    """One server with one stream, of one replica, whose messages are in memory.

    ``endpoint`` is for ``benchmarks.destinations.jetstream``, which speaks the NATS protocol itself, over TCP; the
    generator does not.

    Attributes:
        storage: of the stream, as JetStream names it.
    """

    name: ClassVar[str] = "jetstream"
    title: ClassVar[str] = "NATS JetStream, in memory"
    storage: ClassVar[str] = "memory"

    def prepare(self, folder: Path) -> None:
        """Find the server, as ``Nats`` does.

        Raises:
            SystemUnavailable: there is none.
        """
        super().prepare(folder.with_name(Nats.name))

    def settings(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``; benchmarks/peers/README.md says more."""
        return {
            "stream": f"storage {self.storage}, one replica",
            "queue": "retention workqueue; a push consumer with a deliver group of four, explicit acknowledgements",
            "history": "retention limits (its default); a push consumer from the first message, no acknowledgements",
            "transport": "TCP, the NATS protocol: WebSocket would cost it more",
        }

    def command(self, place: Place) -> Sequence[str | Path]:
        """See ``OneProgram``."""
        return [self.program, "-a", HOST, "-p", str(place.port), "-js", "-sd", place.folder]

    def endpoint(self, port: int) -> Endpoint:
        """See ``OneProgram``."""
        return Endpoint(None, HOST, port, "", "")


class JetStreamFile(JetStream):
    """The same, whose messages are written to files at once, and forced to the disk every two minutes, its default."""

    name: ClassVar[str] = "jetstream-file"
    title: ClassVar[str] = "NATS JetStream, in files"
    storage: ClassVar[str] = "file"
