"""The streams over which the journal is spread."""

from __future__ import annotations

from typing import Final
from zlib import crc32

from gateway.core.types import NodeId, SessionId

JOURNAL_PARTITIONS: Final = 16
"""Streams of the journal: one event of a storm costs the grid little, so that they are for the readers, which read
them side by side: on a laptop with all of its cores, and on a cluster with sixteen. Part of every offset that a reader
remembers, so it can never change in a live grid."""


def journal_partition(subject: SessionId | NodeId) -> int:
    """Tell which stream carries what happens to a session, or to a node: all of it, in order.

    Returns:
        A number from 0 to ``JOURNAL_PARTITIONS - 1``.
    """
    return crc32(subject.encode()) % JOURNAL_PARTITIONS
