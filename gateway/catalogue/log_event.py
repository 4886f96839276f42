"""What a log event is; see ``log_events`` for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """Severity, with the numbers of the standard library."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


@dataclass(frozen=True, slots=True, eq=False)
class LogEvent:
    """One kind of log event; compared by identity, because each is declared exactly once.

    Attributes:
        name: stable name, ``subject_past-tense``.
        level: severity.
        meaning: what happened, and for warnings and errors what to do.
        fields: names of the fields it always carries.
        bug: True if it reports a bug of the gateway; the traceback of the exception in ``error`` is logged with it.
    """

    name: str
    level: Level
    meaning: str
    fields: tuple[str, ...] = ()
    bug: bool = False
