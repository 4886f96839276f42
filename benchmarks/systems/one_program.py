"""What the peers have in common that are a single program, with nothing beside it but a Redis."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import jinja2

from benchmarks.placement import Placement
from benchmarks.processes import HOST, PinnedProcess, listens, redis_server, scratch_folder
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


@dataclass(frozen=True)
class Place:
    """Where a program runs.

    Attributes:
        port: to listen on, on 127.0.0.1.
        folder: for its files; deleted when it has ended.
        redis_url: of its Redis; empty if it has none.
    """

    port: int
    folder: Path
    redis_url: str


class OneProgram(SystemUnderTest):
    """A server that is one process, with a Redis or without, listens on one port, and knows no settings of a case.

    Attributes:
        with_redis: whether a Redis of its own runs beside it.
    """

    with_redis: ClassVar[bool] = False

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
    def command(self, place: Place) -> Sequence[str | Path]:
        """Tell how it is started, and write the configuration that it needs.

        Raises:
            SystemFailed: it was not prepared.
        """

    @abstractmethod
    def endpoint(self, port: int) -> Endpoint:
        """Tell how it is reached."""

    def is_ready(self, port: int) -> bool:
        """Tell whether it can be measured: it listens."""
        return listens(port)

    @contextlib.contextmanager
    def running(self, placement: Placement, options: StartOptions) -> Iterator[Running]:
        """See ``SystemUnderTest``."""
        if options.extra:
            raise SystemFailed(f"{self.name} knows no settings, but was given {sorted(options.extra)}")
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(scratch_folder(self.name))
            processes: dict[Role, PinnedProcess] = {}
            redis_url = ""
            if self.with_redis:
                processes[Role.STORE], redis_port = stack.enter_context(redis_server(placement.others))
                redis_url = f"redis://{HOST}:{redis_port}"
            port = free_port()
            command = self.command(Place(port, folder, redis_url))
            server = stack.enter_context(PinnedProcess(command, core=placement.server, folder=folder))
            processes[Role.SERVER] = server
            server.wait_ready(lambda: self.is_ready(port))

            def alive() -> None:
                for each in processes.values():
                    each.check()

            yield Running(
                endpoint=self.endpoint(port),
                pids=lambda: {role: each.pids() for role, each in processes.items()},
                alive=alive,
            )


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
