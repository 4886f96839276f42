"""The floor below every server that joins its writes: a bare epoll loop in C, compiled when it is needed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.systems.base import Endpoint, SystemFailed, SystemUnavailable
from benchmarks.systems.one_program import PEERS, OneProgram, Place, plain_endpoint

SOURCES: Final = PEERS / "c_floor"

COMPILER: Final = "gcc"

COMPILER_OPTIONS: Final = ("-std=c17", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
"""-O2 as distributions build their packages; nearly all its time is spent in the kernel anyway."""

PROGRAM: Final = "floor"

DIGEST_CHARACTERS: Final = 16
"""Of the sources' hash in the program's name: enough to tell versions apart."""


class CFloor(OneProgram):
    """Joins what one turn of its loop brings, one ``send()`` for each subscriber; keeps and promises nothing.

    It is not a product to compare with: it tells what joining costs at least. Where nothing piles up that is one write
    for each delivery. It is the reference for a handshake, too: a request read by hand, SHA-1, and one ``send()``.
    """

    name: ClassVar[str] = "c_floor"
    title: ClassVar[str] = "C loop that joins writes"

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

    def command(self, place: Place) -> Sequence[str | Path]:
        """See ``OneProgram``."""
        return [self.program, str(place.port)]

    def endpoint(self, port: int) -> Endpoint:
        """See ``OneProgram``."""
        return plain_endpoint(port)
