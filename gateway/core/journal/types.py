"""What kinds of events there are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class EventType:
    """One kind of journal event; compared by identity, because each is declared exactly once.

    Attributes:
        name: as in records: ``subject_past-tense``.
        meaning: what happened, for people.
        fields: names of the fields that it may carry beside the envelope; each may be left out if there is nothing to
            tell.
        about_session: whether it is about a session, and then in the order of that session's events.
    """

    name: str
    meaning: str
    fields: tuple[str, ...] = ()
    about_session: bool = True
