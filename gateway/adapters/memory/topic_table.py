"""The topics that an in-memory grid holds: values, versions, streams and receipts, one method per atomic step."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar, cast

from gateway.adapters.memory.history_table import Histories
from gateway.adapters.memory.origin_table import Origins
from gateway.adapters.memory.topic_stream import ORIGIN, Stream
from gateway.core.destinations.limits import HistoryLimits
from gateway.core.topics.topics import TOPIC_PARTITIONS, topic_partition
from gateway.core.topics.versions import BESIDE, is_later, least_version
from gateway.core.types import Epoch, EventId, GridGeneration, RequestNumber, SessionId, TopicPath, Version
from gateway.core.zones.routes import ClusterId
from gateway.core.zones.stamps import Mark, StreamPlace
from gateway.ports import (
    NEVER,
    NO_NEW_TOPICS,
    VALUE_BYTES,
    Arrived,
    Fenced,
    ForwardedEvent,
    HistoryPage,
    HistoryQuestion,
    LeavingEvent,
    NotCreated,
    NotStored,
    NotTaken,
    Ownership,
    PublishCommand,
    Published,
    StagedPublish,
    StreamPosition,
    Taken,
    TopicPage,
    TopicValue,
    TransactionRefused,
)

T = TypeVar("T")

NO_REQUEST: Final = RequestNumber(0)
"""Below the first request of every session."""

NO_VERSION: Final = Version(0)
"""Below the first version of every topic."""

RESTORED_REMOVAL: Final = 7 * 24 * 3600.0
"""Seconds for which a removal is remembered that was written again: the longest window of a session."""

RECEIPT_LIFE: Final = 3600.0
"""Seconds without a publish after which the receipts of a session that the grid does not hold are forgotten: beyond any
window, after which nobody can resubmit. Sessions that are not replicated leave such receipts, and so does a publish
that arrives long after its session has ended; receipts of sessions in the grid live as long as their session."""


_PUBLISH: Final = "publish"
"""A kind of request."""


@dataclass(slots=True)
class _Receipts:
    """What one session published in one partition.

    Attributes:
        epoch: highest that published here.
        last: highest request executed here; lower ones of this partition have been executed too.
        answers: receipts that are not settled, by request, in order: of what kind it is, and what came of it.
        used: when the session last published here.
    """

    epoch: Epoch
    last: RequestNumber = NO_REQUEST
    answers: OrderedDict[RequestNumber, tuple[str, object]] = field(default_factory=OrderedDict)
    used: float = 0.0

    def recall(self, kind: str, request: RequestNumber) -> object:
        """Tell what came of a request; None if that is forgotten. A number that was another kind's tells nothing."""
        known, answer = self.answers.get(request, (kind, None))
        return answer if known == kind else None

    def execute(self, epoch: Epoch, request: RequestNumber) -> None:
        """Note that a request is executed. One that is asked for again keeps no former owner out."""
        self.epoch, self.last = epoch, request

    def keep(self, kind: str, request: RequestNumber, settled: RequestNumber, answer: object) -> None:
        """Remember what came of a request, unless its client knows."""
        if request > settled:
            self.answers[request] = (kind, answer)


@dataclass(slots=True)
class _Partition:
    """One topic partition.

    Attributes:
        stream: its entries.
        values: the newest value of each topic.
        receipts: by session, the least recently used first.
        removed: when which removal may be forgotten.
        ending: topics that were given a value that ends.
        held: bytes of the values.
        least: versions of new topics are above it, as they may be those of topics that were removed and forgotten.
        histories: of the topics that have any.
        origins: of the topics that cross between clusters.
    """

    stream: Stream
    histories: Histories
    origins: Origins = field(default_factory=Origins)
    values: dict[TopicPath, TopicValue] = field(default_factory=dict)
    receipts: OrderedDict[SessionId, _Receipts] = field(default_factory=OrderedDict)
    removed: dict[TopicPath, float] = field(default_factory=dict)
    ending: set[TopicPath] = field(default_factory=set)
    least: Version = NO_VERSION
    held: int = 0

    def growth(self, topic: TopicPath, value: bytes) -> int:
        """Tell by how many bytes the partition grows with a value."""
        stored = self.values.get(topic)
        return len(topic.encode()) + len(value) + VALUE_BYTES if stored is None else len(value) - len(stored.value)

    def store(self, value: TopicValue) -> None:
        """Store a value."""
        self.held += self.growth(value.topic, value.value)
        if value.ends:
            self.ending.add(value.topic)
        else:
            self.ending.discard(value.topic)
        self.values[value.topic] = value

    def forget_removals(self, now: float) -> None:
        """Forget removals that everybody has heard of."""
        for topic in [topic for topic, until in self.removed.items() if until <= now]:
            del self.removed[topic]
            value = self.values[topic]
            if not value.value:
                self.least = max(self.least, value.version)
                self.held -= len(topic.encode()) + VALUE_BYTES
                del self.values[topic]
                self.origins.forget(topic)


class Topics:
    """All topics of the grid. Every method is one atomic step; *now* is the grid's clock in seconds.

    Args:
        stream_length: entries kept per partition.
        stream_bytes: bytes kept per partition; 0 for no limit.
        history_bytes: bytes that the histories of a partition keep together.
        depth: leading path segments that decide a topic's partition.
    """

    def __init__(self, *, stream_length: int, stream_bytes: int, history_bytes: int, depth: int) -> None:
        self._partitions = [
            _Partition(Stream(stream_length, stream_bytes), Histories(history_bytes)) for _ in range(TOPIC_PARTITIONS)
        ]
        self._depth = depth
        self._news: set[int] = set()

    def publish(
        self, command: PublishCommand, generation: GridGeneration, now: float, *, held: Callable[[SessionId], bool]
    ) -> Published | NotCreated | NotStored | Fenced:
        """Execute one publish; see ``TopicStore.publish``.

        Args:
            command: what to publish.
            generation: of the grid.
            now: the grid's clock.
            held: tells whether the grid holds a session.
        """
        number = topic_partition(command.topic, self._depth)
        partition = self._partitions[number]
        receipts = self._open(number, command.ownership, command.settled, now, held)
        if receipts is None:
            return Fenced(f"session {command.ownership.session} has published by a newer epoch already")
        request, settled = command.request, command.settled
        if request <= receipts.last:
            known = receipts.recall(_PUBLISH, request) or Published(Version(0), EventId(""), duplicate=True)
            return cast("Published | NotCreated | NotStored", known)
        receipts.execute(command.ownership.epoch, request)
        is_new = command.topic not in partition.values
        is_full = is_new and command.most_topics and len(partition.values) >= command.most_topics
        if is_full or (command.history is not None and not partition.histories.takes(command.topic)):
            receipts.keep(_PUBLISH, request, settled, NotCreated(duplicate=True))
            return NotCreated(duplicate=False)
        growth = partition.growth(command.topic, command.value)
        if growth > 0 and command.most_bytes and partition.held + growth > command.most_bytes:
            receipts.keep(_PUBLISH, request, settled, NotStored(duplicate=True))
            return NotStored(duplicate=False)
        before = partition.values.get(command.topic)
        value = self._write(number, generation, command.topic, command.value, _end_of(command.ttl, now))
        if command.history is not None:
            partition.histories.append(value, before, command.history, now)
        receipts.keep(_PUBLISH, request, settled, Published(value.version, value.event, duplicate=True))
        return Published(value.version, value.event, duplicate=False, created=is_new)

    def refuses(self, number: int, publishes: Sequence[StagedPublish]) -> TransactionRefused | None:
        """Tell why a transaction cannot publish in a partition."""
        partition = self._partitions[number]
        sizes: dict[TopicPath, int] = {}
        added = grown = 0
        logs: set[TopicPath] = set()
        for each in publishes:
            known, size = each.topic in partition.values or each.topic in sizes, len(each.value)
            if each.topic in sizes:
                growth = size - sizes[each.topic]
            else:
                growth = partition.growth(each.topic, each.value)
                added += not known
                if not known and each.most_topics and len(partition.values) + added > each.most_topics:
                    return TransactionRefused.TOPICS
            grown += growth
            if growth > 0 and each.most_bytes and partition.held + grown > each.most_bytes:
                return TransactionRefused.BYTES
            sizes[each.topic] = size
            if each.history is not None:
                logs.add(each.topic)
                if not partition.histories.take(logs):
                    return TransactionRefused.TOPICS
        return None

    def execute(self, number: int, publish: StagedPublish, generation: GridGeneration, now: float) -> None:
        """Execute a publish of a transaction."""
        partition = self._partitions[number]
        before = partition.values.get(publish.topic)
        value = self._write(number, generation, publish.topic, publish.value, _end_of(publish.ttl, now))
        if publish.history is not None:
            partition.histories.append(value, before, publish.history, now)

    def once(
        self,
        number: int,
        ownership: Ownership,
        request: RequestNumber,
        settled: RequestNumber,
        now: float,
        *,
        kind: str,
        held: Callable[[SessionId], bool],
        step: Callable[[], T],
    ) -> tuple[T | None, bool]:
        """Execute a request of another kind in a partition, once.

        Args:
            number: the partition.
            ownership: for whom.
            request: its number; 0 for what is no request, and is executed.
            settled: receipts up to this request may be forgotten.
            now: the grid's clock.
            kind: of the request.
            held: tells whether the grid holds a session.
            step: executes it.

        Returns:
            What came of it, and whether that was before; None then if that is forgotten.

        Raises:
            Fenced: a newer owner has been here.
        """
        self.check(number, ownership)
        if not request:
            return step(), False
        receipts = self._open(number, ownership, settled, now, held)
        if receipts is not None and request > receipts.last:
            answer = step()
            receipts.execute(ownership.epoch, request)
            receipts.keep(kind, request, settled, answer)
            return answer, False
        return None if receipts is None else cast("T | None", receipts.recall(kind, request)), True

    def recall(self, number: int, ownership: Ownership, request: RequestNumber, kind: str) -> object:
        """Tell what came of a request in a partition, without executing it; None if nothing is known."""
        receipts = self._partitions[number].receipts.get(ownership.session)
        return None if receipts is None else receipts.recall(kind, request)

    def check(self, number: int, ownership: Ownership) -> None:
        """Expect that no newer owner of a session has been in a partition.

        Raises:
            Fenced: one has.
        """
        receipts = self._partitions[number].receipts.get(ownership.session)
        if receipts is not None and ownership.epoch < receipts.epoch:
            raise Fenced(f"session {ownership.session} has a newer owner than epoch {ownership.epoch}")

    def _open(
        self,
        number: int,
        ownership: Ownership,
        settled: RequestNumber,
        now: float,
        held: Callable[[SessionId], bool],
    ) -> _Receipts | None:
        """Look up the receipts of a session; None if a newer owner has been here."""
        partition = self._partitions[number]
        self._forget_oldest(partition, now, held)
        receipts = partition.receipts.setdefault(ownership.session, _Receipts(ownership.epoch))
        if ownership.epoch < receipts.epoch:
            return None
        receipts.used = now
        partition.receipts.move_to_end(ownership.session)
        answers = receipts.answers
        while answers and next(iter(answers)) <= settled:
            answers.popitem(last=False)
        return receipts

    def position(self, number: int, generation: GridGeneration) -> StreamPosition:
        """See ``TopicStore.position``."""
        end = self._partitions[number].stream.end
        return end if end.grid_generation == generation else StreamPosition(generation, 0)

    def topics(self, number: int) -> list[TopicPath]:
        """Name the topics of a partition."""
        return list(self._partitions[number].values)

    def values(self, number: int, topics: Iterable[TopicPath], generation: GridGeneration) -> list[TopicValue]:
        """Read the values of *topics*, which are of one partition; those that have none are left out."""
        values = self._partitions[number].values
        return [_shown(values[topic], generation) for topic in topics if topic in values]

    def scan(self, number: int, step: str | None, count: int, generation: GridGeneration) -> TopicPage:
        """See ``TopicStore.scan``."""
        values = self._partitions[number].values
        topics = sorted(topic for topic in values if step is None or topic > step)
        chosen = topics[:count]
        return TopicPage(
            [_shown(values[topic], generation) for topic in chosen], chosen[-1] if len(topics) > count else None
        )

    def read(self, topic: TopicPath, generation: GridGeneration) -> TopicValue | None:
        """See ``TopicStore.read``."""
        stored = self._partitions[topic_partition(topic, self._depth)].values.get(topic)
        return None if stored is None else _shown(stored, generation)

    def remove(
        self, topic: TopicPath, generation: GridGeneration, keep: float, now: float, history: HistoryLimits | None
    ) -> Published | None:
        """See ``TopicStore.remove``."""
        number = topic_partition(topic, self._depth)
        partition = self._partitions[number]
        stored = partition.values.get(topic)
        if stored is None:
            return None
        if not stored.value:
            return Published(stored.version, stored.event, duplicate=True)
        removal = self._write(number, generation, topic, b"", NEVER)
        partition.removed[topic] = now + keep
        if history is not None:
            partition.histories.drop(topic, known=True)
            if partition.histories.takes(topic):
                partition.histories.append(removal, stored, history, now)
        partition.forget_removals(now)
        return Published(removal.version, removal.event, duplicate=False)

    def has_room(self, topic: TopicPath, value: bytes, *, most_topics: int, most_bytes: int) -> bool:
        """Tell whether a value fits into its partition; bounds of 0 are none."""
        partition = self._partitions[topic_partition(topic, self._depth)]
        if topic not in partition.values and most_topics and len(partition.values) >= most_topics:
            return False
        return not most_bytes or partition.held + partition.growth(topic, value) <= most_bytes

    def keep(self, topic: TopicPath, value: bytes, generation: GridGeneration) -> None:
        """Set a value that nobody publishes, unless it is there."""
        number = topic_partition(topic, self._depth)
        stored = self._partitions[number].values.get(topic)
        if stored is None or stored.value != value:
            self._write(number, generation, topic, value, NEVER)

    def due(self, partitions: Iterable[int], limit: int, now: float) -> list[TopicPath]:
        """See ``TopicStore.due``."""
        found: list[TopicPath] = []
        for number in partitions:
            partition = self._partitions[number]
            ends = sorted((partition.values[topic].ends, topic) for topic in partition.ending)
            found += [topic for at, topic in ends if at <= now * 1000][:limit]
        return found

    def end(
        self, topic: TopicPath, generation: GridGeneration, keep: float, now: float, history: HistoryLimits | None
    ) -> bool:
        """End one value; see ``TopicStore.end``."""
        number = topic_partition(topic, self._depth)
        partition = self._partitions[number]
        stored = partition.values.get(topic)
        if stored is None or not 0 < stored.ends <= now * 1000:
            return False
        removal = self._write(number, generation, topic, b"", NEVER)
        partition.removed[topic] = now + keep
        if history is not None and partition.histories.takes(topic):
            partition.histories.append(removal, stored, history, now)
        partition.forget_removals(now)
        return True

    def restore(self, value: TopicValue, generation: GridGeneration, now: float) -> bool:
        """Put one value back; see ``TopicStore.restore``. It keeps the id of the publish that it came from."""
        number = topic_partition(value.topic, self._depth)
        partition = self._partitions[number]
        stored = partition.values.get(value.topic)
        if stored is None and (not value.value or value.version <= partition.least):
            return False
        if stored is not None and not is_later(value.event, stored.event):
            return False
        least = max(partition.least if stored is None else stored.version, least_version(generation))
        if value.version <= least:
            value = value._replace(version=Version(least + BESIDE))
        if not value.value:
            partition.removed[value.topic] = now + RESTORED_REMOVAL
        partition.stream.append(generation, lambda _position: value, came=(None,))
        partition.store(value)
        self._news.add(number)
        return True

    def after(
        self, number: int, position: StreamPosition, limit: int
    ) -> tuple[list[TopicValue], StreamPosition] | None:
        """Read the stream of a partition; see ``Stream.after``."""
        return self._partitions[number].stream.after(position, limit)

    def arrived(self, number: int, end: StreamPosition, count: int) -> Mapping[int, Arrived | None]:
        """Tell how entries of the stream of a partition came; see ``Stream.arrived``."""
        return self._partitions[number].stream.arrived(end, count)

    # --- Between clusters ---------------------------------------------------------------------------------------------

    def stamp(self, number: int, events: Sequence[LeavingEvent], cluster: ClusterId, wall: float) -> list[Mark | None]:
        """See ``OriginStore.stamp``; *wall* is in seconds since 1970."""
        origins = self._partitions[number].origins
        return [origins.stamp(each, cluster, wall) for each in events]

    def note_times(self, wall: float) -> None:
        """See ``OriginStore.note_times``; *wall* is in seconds since 1970."""
        for partition in self._partitions:
            end = partition.stream.end
            if end.sequence:
                partition.origins.note_time(StreamPlace(end.grid_generation, end.sequence), wall)

    def take(
        self, event: ForwardedEvent, generation: GridGeneration, now: float, *, cluster: ClusterId, wall: float
    ) -> Taken | NotTaken:
        """Take one event of another cluster; see ``OriginStore.apply``. *wall* is in seconds since 1970."""
        topic, history = event.topic, event.history
        number = topic_partition(topic, self._depth)
        partition = self._partitions[number]
        if partition.origins.is_stale(event):
            return NotTaken.STALE
        before = partition.values.get(topic)
        held = partition.origins.held(before, topic, cluster, wall)
        why = partition.origins.why_not(event, held)
        if why is not None:
            return why
        full = event.most_topics and (len(partition.values) >= event.most_topics or event.most_topics == NO_NEW_TOPICS)
        if (before is None and full) or (history is not None and not partition.histories.takes(topic)):
            return NotTaken.TOPICS
        growth = partition.growth(topic, event.value)
        if growth > 0 and event.most_bytes and partition.held + growth > event.most_bytes:
            return NotTaken.BYTES
        came = Arrived(event.arrival, event.origin, event.stamp, event.path)
        value = self._write(number, generation, topic, event.value, NEVER, came=(came,))
        if not event.value:
            partition.removed[topic] = now + RESTORED_REMOVAL
        if history is not None:
            if not event.value:
                partition.histories.drop(topic, known=True)
            partition.histories.append(value, before, history, now)
        partition.origins.note(event, value, held)
        partition.forget_removals(now)
        return Taken(value.version, value.event, created=before is None)

    def between(self, number: int, after: StreamPosition, upto: StreamPosition) -> list[TopicValue] | None:
        """Read a stretch of the stream of a partition; see ``TopicStore.between``."""
        if after == upto:
            return []
        if after.grid_generation not in {upto.grid_generation, ORIGIN.grid_generation}:
            return None
        read = self.after(number, after, max(0, upto.sequence - after.sequence))
        if read is None or read[1] != upto:
            return None
        return read[0]

    def histories(self, number: int) -> Histories:
        """Return the histories of a partition."""
        return self._partitions[number].histories

    def sweep(self, number: int, topics: Sequence[tuple[TopicPath, HistoryLimits | None]], now: float) -> int:
        """See ``HistoryStore.sweep``."""
        partition = self._partitions[number]
        return sum(
            partition.histories.sweep(topic, limits, known=topic in partition.values, now=now)
            for topic, limits in topics
        )

    def read_histories(self, number: int, questions: Sequence[HistoryQuestion]) -> list[HistoryPage]:
        """See ``HistoryStore.read``."""
        partition = self._partitions[number]
        return [partition.histories.read(each, partition.values.get(each.topic)) for each in questions]

    def restore_history(self, topic: TopicPath, events: Sequence[TopicValue], limits: HistoryLimits, now: float) -> int:
        """See ``HistoryStore.restore``."""
        return self.histories(topic_partition(topic, self._depth)).restore(topic, events, limits, now)

    def forget(self, session: SessionId) -> None:
        """Delete every receipt of a session."""
        for partition in self._partitions:
            partition.receipts.pop(session, None)

    def take_news(self) -> set[int]:
        """Tell which partitions got entries since this was asked last."""
        news, self._news = self._news, set()
        return news

    def inventory(self) -> set[str]:
        """Name everything that is kept."""
        names = set()
        for number, partition in enumerate(self._partitions):
            names |= {f"receipts of {session} in {number}" for session in partition.receipts}
            names |= {f"value of {topic}" for topic in partition.values}
            if len(partition.stream):
                names.add(f"stream {number}")
            names |= {f"value of {topic} elsewhere" for topic in partition.origins.inventory()}
        return names

    def _write(
        self,
        number: int,
        generation: GridGeneration,
        topic: TopicPath,
        text: bytes,
        ends: int,
        *,
        came: tuple[Arrived] | None = None,
    ) -> TopicValue:
        partition = self._partitions[number]
        stored = partition.values.get(topic)
        least = least_version(generation)
        version = Version(max(partition.least if stored is None else stored.version, least) + 1)

        def make(position: StreamPosition) -> TopicValue:
            return TopicValue(topic, version, position.event(number), text, ends)

        value = partition.stream.append(generation, make, came=came)
        partition.store(value)
        self._news.add(number)
        return value

    def _forget_oldest(self, partition: _Partition, now: float, held: Callable[[SessionId], bool]) -> None:
        """Look at the least recently used receipts: one look per publish is enough to keep up with what is added."""
        for session, receipts in partition.receipts.items():
            if receipts.used + RECEIPT_LIFE <= now:
                if held(session):
                    receipts.used = now
                    partition.receipts.move_to_end(session)
                else:
                    del partition.receipts[session]
            return


def _end_of(ttl: float, now: float) -> int:
    return round((now + ttl) * 1000) if ttl else NEVER


def _shown(value: TopicValue, generation: GridGeneration) -> TopicValue:
    """Return a value as it is shown in a generation."""
    least = least_version(generation)
    return value if value.version >= least else value._replace(version=least)
