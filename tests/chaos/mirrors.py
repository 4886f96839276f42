"""Whether the nodes of a run have backups."""

from __future__ import annotations

from typing import Final

OFF: Final = "off"
ASYNC: Final = "async"
SYNC: Final = "sync"
MIRRORS: Final = (OFF, ASYNC, SYNC)
"""Whether nodes have backups: none, one that they do not wait for, or one that they wait for."""


def mirror_of(seed: int) -> str:
    """Tell what a seed decides of backups: every other one has some, of which clients wait for every other one."""
    return (OFF, ASYNC, OFF, SYNC)[seed % 4]
