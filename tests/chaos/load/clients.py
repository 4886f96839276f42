"""Which applications a run has, and how many of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.chaos.load.application import Application, Listener, Publisher, SlowReader
from tests.chaos.load.crowd import Crowd
from tests.chaos.load.durables import DurableReader
from tests.chaos.load.history import HistoryReader
from tests.chaos.load.queueing import Sender, Worker
from tests.chaos.load.shared import SharedReader
from tests.chaos.load.transactions import InputSender, Processor

COUNTS: Final[Mapping[str, tuple[type[Application], int]]] = {
    "publisher": (Publisher, 12),
    "listener": (Listener, 16),
    "slow": (SlowReader, 3),
    "sender": (Sender, 3),
    "worker": (Worker, 5),
    "reader": (HistoryReader, 4),
    "input": (InputSender, 1),
    "processor": (Processor, 3),
    "durable": (DurableReader, 2),
    "shared": (SharedReader, 3),
}
"""By the first part of their names."""


def applications(crowd: Crowd) -> list[Application]:
    """Make all applications of a run."""
    return [kind(crowd, f"{name}-{number}") for name, (kind, count) in COUNTS.items() for number in range(count)]
