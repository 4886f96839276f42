"""What an event is that is announced; see ``announcer``."""

from __future__ import annotations

from typing import ClassVar, Final, TypeAlias

from gateway.catalogue.log_event import LogEvent
from gateway.catalogue.metric import Metric
from gateway.core.journal import EventType
from gateway.core.types import Epoch, SessionId

Fields: TypeAlias = dict[str, object]
"""Values by the names that the catalogue declares."""

Subject: TypeAlias = tuple[SessionId | None, Epoch | None]
"""Which session an event of the journal is about, and its epoch; None for what is not known."""

NOBODY: Final[Subject] = (None, None)
"""The subject of what is about no session, or of one that cannot be told."""


class Event:
    """Something that happened; a subclass declares how it is told.

    Attributes:
        metric: counts it; None if none does.
        log: tells operators; None if nothing is logged.
        journal: tells the journal; None if that is not told.
    """

    __slots__ = ()

    metric: ClassVar[Metric | None] = None
    log: ClassVar[LogEvent | None] = None
    journal: ClassVar[EventType | None] = None

    def amount(self) -> float:
        """By how much the metric counts up."""
        return 1

    def label(self) -> str:
        """Value of the metric's label."""
        return ""

    def logged(self) -> Fields:
        """Fields of the log event."""
        return {}

    def about(self) -> Subject | None:
        """Which session the event of the journal is about; None if the journal leaves it out, as it does consoles."""
        return NOBODY

    def told(self) -> Fields:
        """Fields of the event of the journal; ``principal`` as it is, as the journal knows how it is to be named."""
        return {}
