"""The floor below every server that joins its writes: a bare epoll loop in C, compiled when it is needed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.placement import Placement
from benchmarks.processes import HOST, PinnedProcess, listens, scratch_folder
from benchmarks.systems.base import (
    TOPIC_MARK,
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

SOURCES: Final = Path(__file__).parents[1] / "peers" / "c_floor"

COMPILER: Final = "gcc"

COMPILER_OPTIONS: Final = ("-std=c17", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
"""-O2 as distributions build their packages; nearly all its time is spent in the kernel anyway."""

PROGRAM: Final = "floor"

DIGEST_CHARACTERS: Final = 16
"""Of the sources' hash in the program's name: enough to tell versions apart."""


class CFloor(SystemUnderTest):
    """Joins what one turn of its loop brings, one ``send()`` for each subscriber; keeps and promises nothing.

    It is not a product to compare with: it tells what joining costs at least. Where nothing piles up that is one write
    for each delivery. It is the reference for a handshake, too: a request read by hand, SHA-1, and one ``send()``.
    """

    name: ClassVar[str] = "c_floor"
    title: ClassVar[str] = "C loop that joins writes"

    def __init__(self) -> None:
        self._program: Path | None = None

    def prepare(self, folder: Path) -> None:
        """Compile it, unless that was done since the sources changed.

        Raises:
            SystemUnavailable: there is no compiler.
            SystemFailed: it did not compile.
        """
        if shutil.which(COMPILER) is None:
            raise SystemUnavailable(f"{COMPILER} is not installed; scripts/bench-packages does it")
        sources = sorted(SOURCES.glob("*.[ch]"))
        digest = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:DIGEST_CHARACTERS]
        program = folder / f"{PROGRAM}-{digest}"
        if not program.exists():
            folder.mkdir(parents=True, exist_ok=True)
            # Under another name first: tests side by side may compile it at the same time.
            unfinished = folder / f"{program.name}.{os.getpid()}"
            outcome = subprocess.run(
                [COMPILER, *COMPILER_OPTIONS, "-o", unfinished, *(each for each in sources if each.suffix == ".c")],
                capture_output=True,
                text=True,
                check=False,
            )
            if outcome.returncode != 0:
                raise SystemFailed(f"the C floor does not compile:\n{outcome.stderr}")
            unfinished.rename(program)
        self._program = program

    def versions(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``."""
        output = subprocess.run([COMPILER, "-dumpfullversion"], capture_output=True, text=True, check=True).stdout
        return {COMPILER: output.strip()}

    def settings(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``."""
        return {"compiler options": " ".join(COMPILER_OPTIONS), "TCP_NODELAY": "on, as in all the others"}

    @contextlib.contextmanager
    def running(self, placement: Placement, options: StartOptions) -> Iterator[Running]:
        """See ``SystemUnderTest``."""
        if self._program is None:
            raise SystemFailed(f"{self.name} was not prepared")
        if options.extra:
            raise SystemFailed(f"{self.name} knows no settings, but was given {sorted(options.extra)}")
        port = free_port()
        with (
            scratch_folder(self.name) as folder,
            PinnedProcess([self._program, str(port)], core=placement.server, folder=folder) as process,
        ):
            process.wait_ready(lambda: listens(port))
            yield Running(
                endpoint=Endpoint(
                    protocol=WireProtocol.PLAIN,
                    host=HOST,
                    port=port,
                    subscribe_target=f"/sub?id={TOPIC_MARK}",
                    publish_target=f"/pub?id={TOPIC_MARK}",
                    publish_by_http=True,
                ),
                pids=lambda: {Role.SERVER: process.pids()},
                alive=process.check,
            )
