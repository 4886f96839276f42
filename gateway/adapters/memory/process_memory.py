"""The memory of a process that a test makes up."""

from __future__ import annotations

from gateway.ports import MemoryUse


class MadeUpMemory:
    """Implements ``gateway.ports.ProcessMemory``.

    Attributes:
        used: bytes, as the test wants.
        most: bytes; 0 for no bound.
        releases: how often memory was given back.
    """

    def __init__(self, used: int = 0, most: int = 0) -> None:
        self.used = used
        self.most = most
        self.releases = 0

    def look(self) -> MemoryUse:
        """See ``ProcessMemory``."""
        return MemoryUse(self.used, self.most)

    def release(self) -> None:
        """See ``ProcessMemory``."""
        self.releases += 1
