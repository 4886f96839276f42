"""Clusters of clusters in virtual time: what ``gateway.core.zones`` decides, on links that lose, repeat and delay."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from gateway.core.topics.selectors import Selector, matches, parse_selector
from gateway.core.topics.topics import parse_topic
from gateway.core.types import TopicPath, Version
from gateway.core.zones.interest import HeardInterest, InterestChange, InterestTeller
from gateway.core.zones.routes import (
    Arrival,
    ClusterId,
    Crossing,
    Path,
    Place,
    path_beyond,
    why_refused,
    why_stopped,
)
from gateway.core.zones.stamps import Mark, Origin, Seen, Stamp, StreamPlace, stamp_of, stamped, takes_value
from gateway.core.zones.stream_times import StreamTimes


@dataclass(frozen=True)
class Entry:
    """Of a stream."""

    place: StreamPlace
    topic: TopicPath
    version: Version
    value: str
    arrival: Arrival
    path: Path
    origin: Origin
    sender: ClusterId | None


@dataclass(frozen=True)
class Crossed:
    """What is said over a link of one event."""

    topic: TopicPath
    value: str
    origin: Origin
    stamp: Stamp | None
    path: Path
    repeated: bool
    at: int
    """How far the receiver is in the sender's stream when it has this."""


@dataclass(frozen=True)
class _Came:
    """How something came."""

    arrival: Arrival = Arrival.CLIENT
    path: Path = ()
    origin: Origin | None = None
    sender: ClusterId | None = None
    stamp: Stamp | None = None


class Cluster:
    """One grid, with the rules of the scripts."""

    def __init__(self, name: str, zone: str, histories: Iterable[str], skew: int) -> None:
        self.id = ClusterId(name)
        self.place = Place(zone or name)
        self.histories = {parse_topic(each) for each in histories}
        self.skew = skew
        self.stream: list[Entry] = []
        self.values: dict[TopicPath, tuple[str, StreamPlace]] = {}
        self.versions: Counter[TopicPath] = Counter()
        self.marks: dict[TopicPath, Mark] = {}
        self.times = StreamTimes()
        self.seen: dict[tuple[ClusterId, TopicPath], Seen] = {}
        self.cursors: dict[str, int] = {}
        """How far it is in the streams of others, by the names of the links."""
        self.selected: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def now(self, world: World) -> int:
        return round(world.now * 1000) + self.skew

    def note_time(self, world: World) -> None:
        if self.stream:
            self.times.note(self.stream[-1].place, self.now(world))

    def publish(self, topic: TopicPath, value: str) -> Entry:
        return self._append(topic, value, _Came(), None)

    def apply(self, event: Crossed, crossing: Crossing, sender: ClusterId, world: World) -> None:
        why = why_refused(event.topic, event.path, here=self.place)
        if why is not None or event.origin.cluster == self.id:
            self.refused[why.value if why else "own"] += 1
            return
        held = self._held(event.topic, world)
        if event.topic in self.histories:
            seen = self.seen.setdefault((event.origin.cluster, event.topic), Seen())
            if event.repeated or not seen.take(event.origin.version):
                self.refused["duplicate"] += 1
                return
        elif not takes_value(held, event.stamp):
            self.refused["older"] += 1
            return
        came = _Came(crossing.arrival, event.path, event.origin, sender, event.stamp)
        self._append(event.topic, event.value, came, held)

    def _held(self, topic: TopicPath, world: World) -> Stamp | None:
        """Tell the stamp of the value that a topic has, or would get."""
        _, place = self.values.get(topic, ("", None))
        time = 0 if place is None else self.times.time_of(place, self.now(world))
        return stamp_of(self.marks.get(topic), place, cluster=self.id, time=time)

    def _append(self, topic: TopicPath, value: str, came: _Came, held: Stamp | None) -> Entry:
        self.versions[topic] += 1
        version = Version(self.versions[topic])
        place = StreamPlace(1, len(self.stream) + 1)
        origin = came.origin or Origin(self.id, version)
        entry = Entry(place, topic, version, value, came.arrival, came.path, origin, came.sender)
        self.stream.append(entry)
        self.values[topic] = (value, place)
        if came.stamp is not None and takes_value(held, came.stamp):
            self.marks[topic] = Mark(place, came.stamp, origin, came.arrival, came.path)
        return entry

    def stamp(self, entry: Entry, world: World) -> Stamp | None:
        mark = self.marks.get(entry.topic)
        if entry.arrival is not Arrival.CLIENT:
            return mark.stamp if mark is not None and mark.place == entry.place else None
        time = self.times.time_of(entry.place, self.now(world))
        new = stamped(mark, entry.place, entry.version, cluster=self.id, time=time)
        if new is not None:
            self.marks[entry.topic] = new
        return None if new is None else new.stamp


@dataclass
class Link:
    """Brings events of one cluster to another, as long as it is up; what is under way when it breaks is lost."""

    name: str
    sender: Cluster
    receiver: Cluster
    crossing: Crossing
    selector: str | None
    """Of a join."""
    teller: InterestTeller = field(default_factory=InterestTeller)
    heard: HeardInterest = field(default_factory=lambda: HeardInterest(depth=1, most=1000))
    run: int = 0
    up: bool = False
    sent: int = 0
    """Up to where in the sender's stream."""
    events: int = 0
    """That crossed, whether they arrived or not."""
    due: float = 0.0
    """When what was sent last arrives."""
    valued: set[Selector] = field(default_factory=set)
    """What the receiver has had the current values of."""
    ready: bool = False
    """Whether the sender has heard what is wanted, and from where on."""


class World:
    """Everything, in virtual time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.clusters: list[Cluster] = []
        self.links: list[Link] = []
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()

    # --- What there is ------------------------------------------------------------------------------------------------

    def cluster(self, name: str, zone: str, *, histories: Iterable[str] = (), skew: int = 0) -> Cluster:
        cluster = Cluster(name, zone, histories, skew)
        self.clusters.append(cluster)
        return cluster

    def connect(self) -> None:
        """Link the members of each zone, both ways."""
        for sender in self.clusters:
            for receiver in self.clusters:
                if sender is not receiver and sender.place == receiver.place:
                    self._link(Link(f"{sender.id}>{receiver.id}", sender, receiver, Crossing.MEMBER, None))

    def join(self, sender: Cluster, receiver: Cluster, selector: str) -> None:
        """Make a static join; whoever has one is interested itself."""
        self.select(sender, selector)
        self._link(Link(f"{sender.id}=>{receiver.id}", sender, receiver, Crossing.JOIN, selector))

    def _link(self, link: Link) -> None:
        self.links.append(link)
        self.open(link)

    # --- What happens -------------------------------------------------------------------------------------------------

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._number), what))

    def run(self, until: float | None = None) -> None:
        while self._due and (until is None or self._due[0][0] <= until):
            self.now, _, what = heapq.heappop(self._due)
            what()
        if until is not None:
            self.now = until

    def open(self, link: Link) -> None:
        link.up, link.run, link.due, link.ready = True, link.run + 1, self.now, False
        link.teller, link.heard = InterestTeller(), HeardInterest(depth=1, most=1000)
        start = link.receiver.cursors.get(link.name)
        selectors = self._selectors(link)
        link.teller.change(selectors)
        fresh = selectors - link.valued
        link.valued = set(selectors)
        revision = link.teller.revision
        self._under_way(link, lambda: self._begin(link, start, revision, selectors, fresh))

    def _selectors(self, link: Link) -> frozenset[Selector]:
        if link.selector is not None:
            return frozenset({parse_selector(link.selector)})
        return frozenset(parse_selector(text) for text, count in link.receiver.selected.items() if count > 0)

    def _begin(
        self,
        link: Link,
        start: int | None,
        revision: int,
        selectors: frozenset[Selector],
        fresh: frozenset[Selector],
    ) -> None:
        link.heard.whole(revision, selectors)
        link.sent, link.ready = len(link.sender.stream) if start is None else start, True
        self._send(link)
        self._send_values(link, fresh)
        self._tell_place(link)

    def break_(self, link: Link, *, forget: int = 0) -> None:
        """Lose what is under way; the receiver may have lost, too, how far it is."""
        link.up = False
        link.run += 1
        if link.name in link.receiver.cursors:
            link.receiver.cursors[link.name] = max(0, link.receiver.cursors[link.name] - forget)
        if forget:
            link.valued = set()

    def select(self, cluster: Cluster, selector: str, change: int = 1) -> None:
        cluster.selected[selector] += change
        for link in self.links:
            if link.up and link.receiver is cluster:
                self._tell(link)

    def publish(self, cluster: Cluster, topic: str, value: str) -> Entry:
        entry = cluster.publish(parse_topic(topic), value)
        self._wake(cluster)
        return entry

    def _wake(self, cluster: Cluster) -> None:
        for link in self.links:
            if link.up and link.sender is cluster:
                self.later(self.random.random() * 0.01, lambda link=link: self._send(link))  # type: ignore[misc]

    def _tell(self, link: Link) -> None:
        selectors = self._selectors(link)
        change = link.teller.change(selectors)
        if change is not None:
            link.valued = set(selectors)
            self._under_way(link, lambda: self._hear(link, change))

    def _hear(self, link: Link, change: InterestChange) -> None:
        new = link.heard.change(change)
        assert new is not None, "changes arrive in order"
        self._send(link)
        self._send_values(link, new)
        self._tell_place(link)

    def _send_values(self, link: Link, fresh: frozenset[Selector]) -> None:
        events = []
        for topic, (value, place) in link.sender.values.items():
            if any(matches(each, topic) for each in fresh):
                events += self._crossed(link, link.sender.stream[place.sequence - 1], value, repeated=True)
        self._carry(link, events)

    def _tell_place(self, link: Link) -> None:
        """From here on its interest counts."""
        at = link.sent
        self._under_way(link, lambda: self._reached(link, at))

    def _reached(self, link: Link, at: int) -> None:
        link.receiver.cursors[link.name] = max(link.receiver.cursors.get(link.name, 0), at)

    def _send(self, link: Link) -> None:
        if not (link.up and link.ready):
            return
        stream = link.sender.stream
        first, link.sent = link.sent, len(stream)
        events = []
        for entry in stream[first : link.sent]:
            events += self._crossed(link, entry, entry.value, repeated=False)
        self._carry(link, events)

    def _crossed(self, link: Link, entry: Entry, value: str, *, repeated: bool) -> list[Crossed]:
        sender, topic = link.sender, entry.topic
        if not link.heard.wants(topic) or entry.origin.cluster == link.receiver.id:
            return []
        there = link.receiver.place
        if why_stopped(topic, entry.arrival, entry.path, link.crossing, here=sender.place, there=there):
            return []
        stamp = sender.stamp(entry, self)
        path = path_beyond(entry.path, link.crossing, sender.place)
        at = 0 if repeated else entry.place.sequence
        return [Crossed(topic, value, entry.origin, stamp, path, repeated, at)]

    def _carry(self, link: Link, events: list[Crossed]) -> None:
        link.events += len(events)
        for event in events:
            self._under_way(link, lambda event=event: self._arrive(link, event))  # type: ignore[misc]

    def _under_way(self, link: Link, what: Callable[[], None]) -> None:
        """Have something arrive at the other end, in order, unless the link breaks before."""
        run = link.run
        link.due = max(link.due, self.now + self.random.expovariate(1 / 0.05))

        def arrive() -> None:
            if link.run == run:
                what()

        self.later(link.due - self.now, arrive)

    def _arrive(self, link: Link, event: Crossed) -> None:
        receiver = link.receiver
        before = len(receiver.stream)
        receiver.apply(event, link.crossing, link.sender.id, self)
        self._reached(link, event.at)
        if len(receiver.stream) > before:
            self._wake(receiver)

    def note_times(self, *, until: float) -> None:
        """Have each cluster note every second how far it is, as its master does."""
        for cluster in self.clusters:
            cluster.note_time(self)
        if self.now + 1.0 <= until:
            self.later(1.0, lambda: self.note_times(until=until))

    def settle(self) -> None:
        """Mend everything, and let it come to rest."""
        for link in self.links:
            if not link.up:
                self.open(link)
        self.run()
