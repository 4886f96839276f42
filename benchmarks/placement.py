"""Which processes run on which core."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Placement:
    """The system under test has a core to itself; everything else shares another.

    Attributes:
        server: core of the server's processes.
        others: core of Redis, HAProxy and the generator.
    """

    server: int
    others: int

    @classmethod
    def of_this_machine(cls) -> Self:
        """Take the first two cores that this process may use.

        Raises:
            RuntimeError: there is just one; then nothing can be told apart.
        """
        usable = sorted(os.sched_getaffinity(0))
        minimum = 2
        if len(usable) < minimum:
            raise RuntimeError("benchmarks need two cores: one for the system under test, one for what drives it")
        return cls(server=usable[0], others=usable[1])


@contextmanager
def bound_to(core: int) -> Iterator[None]:
    """Bind this process to a core for the length of the block; processes that it starts meanwhile inherit that."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
