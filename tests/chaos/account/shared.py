"""What a shared durable subscription handed out (P14, P15): each event of its topics as one message, settled once.

Any number of sessions of one principal read it together. So each event is judged as a message of a queue is, whoever
has it; and of those that publishers were told of, each was handed to somebody, unless the grid may have lost it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.core.topics.versions import place_of
from gateway.core.types import EventId
from tests.chaos.account.forgotten import Forgotten, undone
from tests.chaos.account.messages import Given, Messages
from tests.chaos.account.publishes import Publishes
from tests.chaos.account.readers import Event, Reader, told_events
from tests.chaos.account.violation import Violation


class SharedReading(Reader):
    """What the sessions of one principal were handed of one shared subscription, whose topics are in one partition.

    Attributes:
        messages: its events, as messages; each has a number here in the place of a value.
    """

    def __init__(self, who: str, selector: str) -> None:
        super().__init__(who, selector)
        self.messages = Messages()
        self._handed: list[Event] = []
        self._numbers: dict[tuple[str, int], int] = {}

    @property
    def figures(self) -> str:
        """Tell how much was handed out, and what became of it."""
        return f"{self.messages.figures}; {self.gaps} gaps told"

    def given(self, topic: str, value: int, event: str, given: Given, *, gap: bool) -> int | None:
        """A session was handed an event; returns the number that it is known by, None if that means nothing."""
        number = self._numbers.get((topic, value))
        if number is None:
            number = self._numbers[topic, value] = self.messages.ask(given.at, self.who, "")
        if not self.messages.given(given.at, self.who, number, given):
            return None
        handed = Event(given.at, place_of(EventId(event)), topic, value, gap)
        self._handed.append(handed)
        # Sessions hand on what they have in whatever order; how far it has come altogether is what others wait for.
        events = self.events[int(event.partition("-")[0])]
        if not events or events[-1].place < handed.place:
            events.append(handed)
        self.last[topic] = max(value, self.last.get(topic, 0))
        self.gaps += gap
        return number

    def judge(
        self, publishes: Publishes, forgotten: Sequence[Forgotten], restarts: Mapping[str, Sequence[float]]
    ) -> list[Violation]:
        """Judge all that was handed out, once.

        Args:
            publishes: what was published.
            forgotten: what the grid was made to forget.
            restarts: by session, when it went on without its buffers, so that what it held came again.
        """
        found: list[Violation] = []

        def violated(at: float, what: str) -> None:
            found.append(Violation("P14", at, self.who, what))

        published = {
            (event.topic, event.value): event for events in told_events(self, publishes).values() for event in events
        }
        for (topic, value), number in self._numbers.items():
            sending, times = self.messages.sendings[number], publishes.topics.get(topic)
            if times is None or value not in times.times:
                violated(sending.asked, f"{topic}={value} was handed out, which nobody published")
                continue
            # It may have become a message at any time up to the last at which somebody was given it.
            sending.sent = max((given.at for given in sending.given), default=sending.asked)
            sending.asked = times.times[value]
        for event in self._handed:
            wanted = published.get((event.topic, event.value))
            if (
                wanted is not None
                and wanted.place != event.place
                and not undone(forgotten, wanted.asked, wanted.at, until=event.at)
            ):
                violated(event.at, f"{event} was handed out, and its publisher was told of {wanted.place}")
            if event.gap and not any(each.began <= event.at for each in forgotten):
                violated(event.at, f"a gap is told before {event}, and nothing was lost")
        had = {key for key, number in self._numbers.items() if self.messages.sendings[number].given}
        missing = [
            event for key, event in published.items() if key not in had and not undone(forgotten, event.asked, event.at)
        ]
        if missing:
            violated(missing[0].at, f"{len(missing)} events were handed to nobody, such as {missing[0]}")
        self.messages.judge(forgotten, restarts)
        return found + self.messages.violations
