"""The memory of this process."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class MemoryUse(NamedTuple):
    """How much is used of what there is.

    Attributes:
        used: bytes.
        most: bytes at which the system refuses more, or kills; 0 if nobody knows.
    """

    used: int
    most: int


class ProcessMemory(Protocol):
    """Knows it. Nothing here waits or raises."""

    def look(self) -> MemoryUse:
        """Tell how it is now, by that of several bounds which is nearest."""

    def release(self) -> None:
        """Give back to the system what was freed and is kept for later, as far as that can be done."""
