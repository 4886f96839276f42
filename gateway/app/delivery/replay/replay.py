"""What one session has missed, as far as it has been found (P13)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from gateway.app.session.session import Session
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.topics.selections import Selections
from gateway.core.topics.selectors import Selector, parse_selector
from gateway.core.types import RequestNumber, TopicPath
from gateway.core.wire import codec
from gateway.core.wire.codes import NotReplayed
from gateway.core.wire.errors import InvalidSelector
from gateway.ports import StreamPosition, TopicValue


class Replay:
    """What one session has missed.

    Args:
        session: whose.
        wanted: by partition, after which place.
        refused: why of other partitions nothing can be replayed.

    Attributes:
        session: as given.
        selections: by which it is matched.
        wanted: as given, without what has been refused since.
        refused: why of some partitions current values are sent.
        upto: by partition, up to which place it has been looked at.
        runs: what was found.
        size: bytes of it.
    """

    __slots__ = ("refused", "runs", "selections", "session", "size", "upto", "wanted")

    def __init__(self, session: Session, wanted: dict[int, StreamPosition], refused: dict[int, NotReplayed]) -> None:
        self.session = session
        self.selections = session.selections
        self.wanted = wanted
        self.refused = refused
        self.upto = dict(wanted)
        self.runs: dict[int, list[Run]] = {}
        self.size = 0

    def refuse(self, number: int, why: NotReplayed) -> None:
        """Replay nothing of a partition; no effect if that was said before."""
        self.wanted.pop(number, None)
        self.upto.pop(number, None)
        self._drop(number)
        self.refused.setdefault(number, why)

    def skip(self, number: int, position: StreamPosition) -> None:
        """Nothing was missed of a partition up to a place."""
        self.wanted[number] = self.upto[number] = position

    def add(self, number: int, run: Run) -> None:
        """Find something."""
        self.runs.setdefault(number, []).append(run)
        self.size += run.size

    def keep_only(self, selections: Selections, needed: frozenset[int]) -> None:
        """Leave out what is not selected any more.

        Args:
            selections: what is.
            needed: the partitions that it may be in.
        """
        for number in self.runs.keys() | self.refused.keys() | self.wanted.keys():
            if number not in needed:
                self.refuse(number, NotReplayed.UNNAMED)
                del self.refused[number]
        for number, runs in list(self.runs.items()):
            kept = [run.without(lambda topic: not selections.selects(TopicPath(topic))) for run in runs]
            self._drop(number)
            for run in kept:
                if run is not None:
                    self.add(number, run)

    def size_of(self, number: int) -> int:
        """Tell how many bytes were found in a partition."""
        return sum(run.size for run in self.runs[number])

    @property
    def is_whole(self) -> bool:
        """Whether every update is replayed that was missed."""
        return not self.refused

    def packets(self) -> list[Run]:
        """List what is to be sent, that of each partition in order."""
        return [run for number in sorted(self.runs) for run in self.runs[number]]

    def _drop(self, number: int) -> None:
        for run in self.runs.pop(number, ()):
            self.size -= run.size


def selectors_of(unfinished: Mapping[RequestNumber, str]) -> dict[RequestNumber, Selector]:
    """Read the selectors of subscribes; what is none was never subscribed to."""
    selectors: dict[RequestNumber, Selector] = {}
    for request, text in unfinished.items():
        with suppress(InvalidSelector):
            selectors[request] = parse_selector(text)
    return selectors


def update_of(value: TopicValue) -> Outgoing:
    """Make the packet of an update that was missed: the successor of what came before it, as it would have been."""
    topic, version, event, text, _ = value
    return Outgoing(topic, codec.encode_update(topic, version, event, text, snapshot=False))
