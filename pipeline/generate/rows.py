"""Events as columns of numbers, before they have texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from gateway.core.journal import EVENT_TYPES, EventType
from gateway.core.wire.codes import ErrorCode, FailoverReason, Outcome
from pipeline.generate.units import Numbers

NONE: Final = -1
"""In every column: nothing to tell."""

Rows: TypeAlias = dict[str, Numbers]
"""Columns of the same length, by name: ``at``, ``type``, ``run``, ``session`` (its number), ``stream``, ``epoch``, and
what the events tell; texts stand as places in ``WORDS``, principals as numbers, nodes as runs. A column that is not
there holds ``NONE`` everywhere."""

ENVELOPE: Final = ("at", "type", "run", "session", "stream", "epoch")

TYPES: Final = tuple(EVENT_TYPES)
_TYPE_NUMBERS: Final[Mapping[str, int]] = {name: number for number, name in enumerate(TYPES)}

WORDS: Final = (
    *(each.value for each in Outcome),
    *(each.value for each in FailoverReason),
    *(each.value for each in ErrorCode),
    "normal", "connection_lost", "ping_timeout", "going_away", "slow_consumer",
    "browser", "mobile", "service",
    "prices", "orders", "chat", "news", "*",
    "jobs/render", "jobs/mail", "sessions",
    "c-paris/0", "from:c-tokyo/0", "paris", "tokyo", "out", "in", "lost", "refused", "given_up",
)  # fmt: skip
"""Every text that stands in an event and is one of a few."""

_WORD_NUMBERS: Final[Mapping[str, int]] = {text: number for number, text in enumerate(WORDS)}


def word(text: str) -> int:
    """Return the number of a text."""
    return _WORD_NUMBERS[text]


def type_number(kind: EventType) -> int:
    """Return the number of a type of events."""
    return _TYPE_NUMBERS[kind.name]


def rows(kind: EventType, at: Numbers, run: Numbers | int, **columns: Numbers | int) -> Rows:
    """Make rows of one type.

    Args:
        kind: what happened.
        at: when; its length is the number of rows.
        run: which incarnations tell it.
        columns: what else there is.
    """
    result = {"at": at, "type": np.full(len(at), type_number(kind), np.int64)}
    for name, given in {"run": run, **columns}.items():
        result[name] = given if isinstance(given, np.ndarray) else np.full(len(at), given, np.int64)
    return result


def length(table: Rows) -> int:
    """Count rows."""
    return len(table["at"]) if table else 0


def join(tables: Sequence[Rows]) -> Rows:
    """Put tables one below the other."""
    tables = [table for table in tables if length(table)]
    lengths = [length(table) for table in tables]
    names = dict.fromkeys((*ENVELOPE, *(name for table in tables for name in table)))
    result = {}
    for name in names:
        column = np.full(sum(lengths), NONE, np.int64)
        begin = 0
        for table, count in zip(tables, lengths, strict=True):
            if name in table:
                column[begin : begin + count] = table[name]
            begin += count
        result[name] = column
    return result


def choose(table: Rows, which: Numbers | np.typing.NDArray[np.bool_]) -> Rows:
    """Take some rows, by a mask or by their places."""
    return {name: column[which] for name, column in table.items()}
