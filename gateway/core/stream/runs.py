"""What is sent to sessions, in the form in which a thousand of them can share it (ADR 0013).

```text
run:      body 41            body 42            body 43
wire:  [{"id":41, "type"…} , { "type"…}      , { "type"…} ]
        └ per session ┘ └──────── shared by all ────────┘
```

In an array only the first session packet needs its number, the others follow (protocol 5.1). So everything behind that
number is the same for every session that is sent the same packets, wherever its own numbering stands: it is encoded and
joined once, and what a session costs does not depend on how many updates wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Self

from gateway.core.wire import codec


class Outgoing(NamedTuple):
    """The body of a session packet; one object is shared by all sessions it goes to.

    Attributes:
        topic: for an update, the topic whose newer update may take its place; None for anything that must arrive.
        body: encoded, without its number (see ``codec.number``).
    """

    topic: str | None
    body: bytes


class Run:
    """One or more bodies that are sent one after the other; immutable, and shared by all sessions they go to.

    Args:
        packets: at least one.

    Attributes:
        count: how many there are.
        size: bytes of all bodies.
        text: the bodies as they follow one another on the wire, without the opening brace and number of the first.
        folded: how many waiting updates of its topic the only one took the place of; see ``FoldedRun``.
    """

    __slots__ = ("_packets", "_sizes", "_topics", "count", "size", "text")

    folded = 0

    def __init__(self, packets: tuple[Outgoing, ...]) -> None:
        self.count = len(packets)
        # Nearly always nobody asks for the bodies one by one, so that they are held once, joined. And a run of one, of
        # which a node may hold some for each of its sessions, is a single object.
        self._packets: tuple[Outgoing, ...] | None = None
        self._sizes: tuple[int, ...] | None = None
        self._topics: tuple[str | None, ...] | str | None
        if self.count == 1:
            ((self._topics, self.text),) = packets
            self.size = len(self.text)
        else:
            bodies = [packet.body for packet in packets]
            self.text = codec.follow(bodies)
            self._topics = tuple([packet.topic for packet in packets])
            self._sizes = tuple(map(len, bodies))
            self.size = sum(self._sizes)

    @classmethod
    def of(cls, *packets: Outgoing) -> Self:
        """Make a run of the given bodies."""
        return cls(packets)

    @property
    def packets(self) -> tuple[Outgoing, ...]:
        """The bodies one by one; once asked for they are kept, so that sessions share these, too."""
        if self._packets is None:
            if isinstance(self._topics, tuple):
                bodies = codec.apart(self.text, self._sizes or ())
                self._packets = tuple(map(Outgoing, self._topics, bodies))
            else:
                self._packets = (Outgoing(self._topics, self.text),)
        return self._packets

    @property
    def topics(self) -> tuple[str | None, ...]:
        """The topic of each body."""
        return self._topics if isinstance(self._topics, tuple) else (self._topics,)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many bytes each body has."""
        return (self.size,) if self._sizes is None else self._sizes

    def first_bytes(self, packets: int) -> int:
        """Tell how many bytes the first *packets* bodies have."""
        return self.size if packets >= self.count else sum((self._sizes or ())[:packets])

    def __eq__(self, other: object) -> bool:
        return self.packets == other.packets if isinstance(other, Run) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.packets)

    def __repr__(self) -> str:
        return f"<Run of {self.count}: {self.text[:60]!r}>"

    def fitting(self, *, packets: int, size: int) -> int:
        """Tell how many may be taken from the front.

        Args:
            packets: at most so many.
            size: bytes; none is taken that would begin when they are used up, but the last may reach beyond.
        """
        sizes = self._sizes
        if sizes is None:
            return 1 if packets > 0 and size > 0 else 0
        if self.count <= packets and self.size - sizes[-1] < size:
            return self.count
        taken = 0
        for body in sizes:
            if taken >= packets or size <= 0:
                break
            size -= body
            taken += 1
        return taken

    def without(self, is_withdrawn: Callable[[str], bool], stand_in: Outgoing | None = None) -> Run | None:
        """Leave out the updates of some topics.

        Args:
            is_withdrawn: tells of a topic whether it is one of them.
            stand_in: what comes in the place of each; None for nothing.

        Returns:
            The run without them, this very one if there are none; None if nothing is left.
        """
        if not any(topic is not None and is_withdrawn(topic) for topic in self.topics):
            return self
        kept: list[Outgoing] = []
        for packet in self.packets:
            if packet.topic is None or not is_withdrawn(packet.topic):
                kept.append(packet)
            elif stand_in is not None:
                kept.append(stand_in)
        return Run(tuple(kept)) if kept else None

    def split(self, at: int) -> tuple[Run, Run]:
        """Cut before the packet with index *at*, which is neither 0 nor the length."""
        return Run(self.packets[:at]), Run(self.packets[at:])


class FoldedRun(Run):
    """One update that took the place of others, as it goes out: a shared body with a mark in front (protocol 6.4).

    The body stays the one that other sessions have, too. Only a message that is being written holds a copy of it with
    its mark, so that a session which is slow costs the memory of its marks and not of its values.

    Args:
        update: as it was submitted.
        folded: how many it took the place of, at least 1.
        snapshot: whether one of them was a snapshot.

    Attributes:
        update: as given.
        folded: as given.
        snapshot: as given.
    """

    __slots__ = ("_mark", "folded", "snapshot", "update")

    def __init__(self, update: Outgoing, folded: int, *, snapshot: bool) -> None:
        self.update = update
        self.folded = folded
        self.snapshot = snapshot
        self._mark = codec.folding_mark(update.body, folded, snapshot=snapshot)
        self._topics = update.topic
        self._packets = self._sizes = None
        self.count = 1
        self.size = len(self._mark) + len(update.body)

    @property
    def text(self) -> bytes:  # type: ignore[override]  # nobody sets it after a run was made
        """The marked body; made whenever it is written."""
        return self._mark + self.update.body

    @property
    def packets(self) -> tuple[Outgoing, ...]:
        """The marked body; not kept, because no other session has the same."""
        return (Outgoing(self.update.topic, self.text),)


def packets_of(runs: Iterable[Run]) -> list[Outgoing]:
    """List the bodies of several runs."""
    return [packet for run in runs for packet in run.packets]
