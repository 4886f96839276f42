"""What readers of durable subscriptions were handed (P14): by name, each event once and in order, behind what was done.

A subscription is opened by one session after the other. Within one opening events only rise, as for every reader of a
history. The next one begins behind what the last one had acknowledged: what was not acknowledged comes again, and what
was confirmed does not, unless the grid may have forgotten just that. An acknowledgement without an answer may have been
executed, or not. Nothing that was acknowledged by nobody may be missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from tests.chaos.account.forgotten import Forgotten, undone
from tests.chaos.account.readers import NOTHING_READ, Event, Reader


@dataclass(slots=True)
class Acknowledgement:
    """A reader said how far it was done.

    Attributes:
        asked: when.
        last: the last event that it was done with.
        answered: when that was confirmed; without an answer never.
    """

    asked: float
    last: Event
    answered: float = inf


@dataclass(slots=True)
class Opening:
    """What one session was handed.

    Attributes:
        events: in the order of time.
        acknowledgements: likewise.
    """

    events: list[Event] = field(default_factory=list)
    acknowledgements: list[Acknowledgement] = field(default_factory=list)


class DurableReader(Reader):
    """What the sessions of one principal were handed of one durable subscription, whose topics are in one partition.

    Attributes:
        openings: one after the other.
    """

    def __init__(self, who: str, selector: str) -> None:
        super().__init__(who, selector)
        self.openings: list[Opening] = []

    def open(self) -> None:
        """Another session has opened it."""
        self.openings.append(Opening())

    def read(self, at: float, topic: str, value: int, event: str, *, gap: bool) -> None:
        """See ``Reader``."""
        super().read(at, topic, value, event, gap=gap)
        (events,) = self.events.values()
        self.openings[-1].events.append(events[-1])

    def acknowledge(self, at: float) -> Acknowledgement:
        """Say that all that was handed out is done; returns what takes the answer."""
        opening = self.openings[-1]
        acknowledgement = Acknowledgement(at, opening.events[-1])
        opening.acknowledgements.append(acknowledgement)
        return acknowledgement

    def beginnings(self, opening: int, forgotten: Sequence[Forgotten]) -> list[Event]:
        """Tell behind which events an opening may have begun, the most likely one first.

        Args:
            opening: its number.
            forgotten: what the grid was made to forget.
        """
        began = next((each.at for each in self.openings[opening].events), inf)
        found = []
        for before in reversed(self.openings[:opening]):
            for each in reversed(before.acknowledgements):
                found.append(each.last)
                if each.answered < inf and not undone(forgotten, each.asked, each.answered, until=began):
                    return found
        return [*found, NOTHING_READ]

    @property
    def again(self) -> int:
        """How many events came again."""
        events = [each.place for opening in self.openings for each in opening.events]
        return len(events) - len(set(events))
