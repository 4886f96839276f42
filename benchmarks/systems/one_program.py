"""What the peers have in common that are a single program and nothing beside it."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import jinja2

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

PEERS: Final = Path(__file__).parents[1] / "peers"
"""Where sources and configurations of the peers are."""


class OneProgram(SystemUnderTest):
    """A server that is one process, listens on one port, and knows no settings of a case."""

    _program: Path | None = None
    """Set by ``prepare``, where that finds or makes a program."""

    @property
    def program(self) -> Path:
        """What ``prepare`` has found or made.

        Raises:
            SystemFailed: it was not called.
        """
        if self._program is None:
            raise SystemFailed(f"{self.name} was not prepared")
        return self._program

    @abstractmethod
    def command(self, port: int, folder: Path) -> Sequence[str | Path]:
        """Tell how it is started, and write the configuration that it needs.

        Args:
            port: to listen on, on 127.0.0.1.
            folder: for its files; deleted when it has ended.

        Raises:
            SystemFailed: it was not prepared.
        """

    @abstractmethod
    def endpoint(self, port: int) -> Endpoint:
        """Tell how it is reached."""

    @contextlib.contextmanager
    def running(self, placement: Placement, options: StartOptions) -> Iterator[Running]:
        """See ``SystemUnderTest``."""
        if options.extra:
            raise SystemFailed(f"{self.name} knows no settings, but was given {sorted(options.extra)}")
        port = free_port()
        with (
            scratch_folder(self.name) as folder,
            PinnedProcess(self.command(port, folder), core=placement.server, folder=folder) as process,
        ):
            process.wait_ready(lambda: listens(port))
            yield Running(endpoint=self.endpoint(port), pids=lambda: {Role.SERVER: process.pids()}, alive=process.check)


def plain_endpoint(port: int) -> Endpoint:
    """Describe a server of plain values that are published by HTTP, each topic under targets of its own."""
    return Endpoint(
        protocol=WireProtocol.PLAIN,
        host=HOST,
        port=port,
        subscribe_target=f"/sub?id={TOPIC_MARK}",
        publish_target=f"/pub?id={TOPIC_MARK}",
        publish_by_http=True,
    )


def configured(file: Path, template: Path, **values: object) -> Path:
    """Write a configuration from its template, and return the file.

    Raises:
        jinja2.UndefinedError: the template names a value that is not given.
    """
    file.write_text(jinja2.Template(template.read_text(), undefined=jinja2.StrictUndefined).render(**values))
    return file
