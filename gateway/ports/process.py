"""What surrounds the process of a node: its memory, and who has started it and wants to know how it fares."""

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


class ServiceManager(Protocol):
    """Is told of the stages of a node's life. Nothing here blocks or raises, whether somebody listens or not."""

    @property
    def watchdog(self) -> float | None:
        """Seconds within which ``alive`` must be told again, or the node is taken for hung; None for no limit."""

    def ready(self) -> None:
        """The node listens; or it has read again what it was told to."""

    def reloading(self) -> None:
        """The node reads its files again; ``ready`` follows."""

    def stopping(self) -> None:
        """The node has begun to stop: it drains."""

    def alive(self) -> None:
        """The event loop turns."""

    def status(self, text: str) -> None:
        """Tell people how it is, in one line."""
