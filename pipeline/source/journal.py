"""The journal's streams in Redis: what they are like, their entries, and the commit.

This is the pipeline's own reader and not the gateway's adapter: it is synchronous, as Spark's workers are, reads and
commits and does nothing else, and lives where the gateway is not installed. The keys are those that the gateway's
``keys.py`` documents; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.resources import files
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from redis import Redis, RedisCluster, Sentinel
from redis.backoff import ExponentialBackoff
from redis.cluster import ClusterNode
from redis.connection import parse_url
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from gateway.core.journal import JOURNAL_PARTITIONS
from gateway.core.types import LARGEST_GENERATION
from gateway.settings.grid_url import GridKind, GridPlace, read_grid_url
from pipeline.errors import NotReady, PipelineError
from pipeline.source.offsets import BEGINNING, EntryId, Position, StreamState, read_entry_id

_COMMIT: Final = files("pipeline.source").joinpath("scripts", "commit.lua").read_text("utf-8")
_CLAIM: Final = files("pipeline.source").joinpath("scripts", "claim.lua").read_text("utf-8")

_ANOTHER_READER: Final = -2
"""What the commit answers if another reader has claimed the stream."""

_RETRIES: Final = 5
"""Of a command whose answer is lost, with growing pauses: some seconds, so that a Redis that is restarted or promoted
does not end a job. Reading twice does no harm, and neither does committing twice."""

_LONGEST_PAUSE: Final = 2.0
"""Seconds between two of those."""

PAGE_ENTRIES: Final = 100
"""Entries that are read at once. An entry holds up to some hundred events, so that a page is some megabytes."""

_ABOUT: Final = frozenset({b"first-entry", b"last-generated-id", b"max-deleted-entry-id"})
"""What is read of what Redis tells about a stream."""

_LAST: Final = str(LARGEST_GENERATION)
"""Where a range of entries ends: no entry of the gateway is behind it."""

Client: TypeAlias = "Redis | RedisCluster"
Fields: TypeAlias = Mapping[bytes, bytes]
"""What an entry holds."""


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """Where the journal is. It may hold a password, which ``repr`` does not show.

    Attributes:
        grid: the grid's URL.
        prefix: begins the name of every key.
        timeout: seconds that a command may take.
    """

    grid: str = field(repr=False)
    prefix: str
    timeout: float


@dataclass(frozen=True, slots=True)
class Holder:
    """What is known of the one who reads a stream.

    Attributes:
        reader: his name; empty if nobody has read it.
        lost: events that the hard cap cut before he had them.
    """

    reader: str
    lost: int


def stream_key(prefix: str, stream: int) -> str:
    """Name a stream of the journal."""
    return f"{prefix}:{{j{stream}}}:journal"


def state_key(prefix: str, stream: int) -> str:
    """Name the hash beside a stream that tells of it."""
    return f"{prefix}:{{j{stream}}}:journal-state"


class Journal:
    """Reads the journal, and commits what was read.

    Args:
        place: where it is.

    Raises:
        PipelineError: by every method: the grid cannot be reached, or refuses.
    """

    def __init__(self, place: JournalPlace) -> None:
        self._prefix = place.prefix
        self._client = _connect(read_grid_url(place.grid), place.timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def states(self) -> dict[int, StreamState]:
        """Tell what every stream is like."""
        return {stream: self.state(stream) for stream in range(JOURNAL_PARTITIONS)}

    def state(self, stream: int) -> StreamState:
        """Tell what a stream is like."""
        with _explained(), self._client.pipeline(transaction=True) as pipe:
            pipe.hget(state_key(self._prefix, stream), "incarnation")
            pipe.xinfo_stream(stream_key(self._prefix, stream))
            incarnation, about = pipe.execute(raise_on_error=False)
        return self._own(stream, _state(incarnation, about))

    def holder(self, stream: int) -> Holder:
        """Tell who reads a stream, and what he missed."""
        with _explained():
            found: Any = self._client.hmget(state_key(self._prefix, stream), "reader", "lost")
        reader, lost = found
        return Holder(_text(reader), int(lost or 0))

    def claim(self, reader: str, *, take_over: bool = False) -> None:
        """Become the reader of all streams, or see that one still is.

        Each stream is claimed in one step, and the streams in order, so that of two who begin together the one that is
        second at the first stream has claimed none.

        Args:
            reader: who.
            take_over: take the streams from another reader.

        Raises:
            NotReady: another one reads the journal.
        """
        for stream in range(JOURNAL_PARTITIONS):
            with _explained():
                flag = "1" if take_over else "0"
                found: Any = self._client.eval(_CLAIM, 1, state_key(self._prefix, stream), reader, flag)
            if (holder := _text(found)) != reader:
                raise NotReady(_read_by(holder))

    def following(self, stream: int, after: EntryId) -> EntryId | None:
        """Find the first entry after another; None if there is none. Those of other programs are left out."""
        with _explained():
            found: Any = self._client.xrange(stream_key(self._prefix, stream), f"({after}", _LAST, count=1)
        return read_entry_id(found[0][0].decode()) if found else None

    def page(
        self, stream: int, after: EntryId, until: EntryId, count: int = PAGE_ENTRIES
    ) -> tuple[StreamState, list[tuple[EntryId, Fields]]]:
        """Read entries, and tell what the stream is like, as of one moment.

        Args:
            stream: which.
            after: the entry before the first.
            until: the last entry, or an id between entries.
            count: entries at most.
        """
        key = stream_key(self._prefix, stream)
        with _explained():
            with self._client.pipeline(transaction=True) as pipe:
                pipe.hget(state_key(self._prefix, stream), "incarnation")
                pipe.xinfo_stream(key)
                pipe.xrange(key, f"({after}", str(until), count=count)
                incarnation, about, found = pipe.execute(raise_on_error=False)
            if isinstance(found, Exception):
                raise found
        # A deleted entry can come as one without fields.
        state = self._own(stream, _state(incarnation, about))
        return state, [(read_entry_id(name.decode()), _pairs(fields)) for name, fields in found]

    def _own(self, stream: int, state: StreamState) -> StreamState:
        """Leave out what another program has appended behind the gateway's entries, until the gateway removes it."""
        if not state.last.is_foreign:
            return state
        key = stream_key(self._prefix, stream)
        with _explained(), self._client.pipeline(transaction=True) as pipe:
            pipe.xrange(key, "-", _LAST, count=1)
            pipe.xrevrange(key, _LAST, "-", count=1)
            first, last = ([read_entry_id(name.decode()) for name, _ in each] for each in pipe.execute())
        return replace(state, first=first[0] if first else None, last=last[0] if last else BEGINNING)

    def commit(self, stream: int, position: Position, oldest: EntryId | None, reader: str) -> int:
        """Note up to where a stream is committed, and trim it.

        Args:
            stream: which.
            position: up to where.
            oldest: the oldest entry to keep; None to trim nothing.
            reader: who reads it.

        Returns:
            Entries trimmed; -1 if the stream is another one by now, and nothing was changed.

        Raises:
            NotReady: another reader has claimed the stream; nothing was changed.
        """
        with _explained():
            keys = (stream_key(self._prefix, stream), state_key(self._prefix, stream))
            kept = "" if oldest is None else str(oldest)
            arguments = (position.incarnation, reader, str(position.entry), kept)
            trimmed = int(self._client.eval(_COMMIT, 2, *keys, *arguments))
        if trimmed == _ANOTHER_READER:
            raise NotReady(_read_by(self.holder(stream).reader))
        return trimmed


def _read_by(holder: str) -> str:
    return (
        f"the journal is read by {holder}, which is not this lake; if that one has ended, run `pipeline ingest "
        "--take-over`: two readers would trim what the other still needs"
    )


def _state(incarnation: Any, about: Any) -> StreamState:
    for each in (incarnation, about):
        if isinstance(each, Exception) and "no such key" not in str(each):
            raise PipelineError(f"the grid refuses to tell about the journal: {each}") from each
    known = _text(incarnation)
    if isinstance(about, Exception):
        # A stream that does not exist has no incarnation either, whatever the hash beside it says.
        return StreamState()
    told = _pairs(about)
    first = told["first-entry"]
    return StreamState(
        incarnation=known,
        first=read_entry_id(first[0].decode()) if first else None,
        last=read_entry_id(told["last-generated-id"].decode()),
        deleted=read_entry_id(told["max-deleted-entry-id"].decode()),
    )


def _pairs(reply: Any) -> dict[Any, Any]:
    """Read a map, which redis-py leaves as a list in the transactions of a cluster; names there are bytes."""
    if isinstance(reply, list):
        return {
            name.decode() if name in _ABOUT else name: reply[at + 1] for at, name in enumerate(reply) if at % 2 == 0
        }
    return dict(reply or {})


def _text(reply: Any) -> str:
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else ""


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except ResponseError as error:
        raise PipelineError(f"the grid refused a command: {error}") from error
    except (RedisError, OSError) as error:
        why = str(error) or type(error).__name__
        raise PipelineError(f"the grid cannot be reached: {why}; run it again when it is back") from error


def _connect(place: GridPlace, timeout: float) -> Client:
    options: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "decode_responses": False,
        # Replies are as they always were, whatever the library makes of newer ones.
        "protocol": 2,
    }
    retry = Retry(ExponentialBackoff(cap=_LONGEST_PAUSE, base=0.1), _RETRIES)
    with _explained():
        if place.kind is GridKind.SINGLE:
            return Redis.from_url(place.redis_url(), retry=retry, **options)
        arguments: dict[str, Any] = dict(parse_url(place.redis_url(place.hosts[0])))  # type: ignore[no-untyped-call]
        arguments.pop("host", None)
        arguments.pop("port", None)
        tls = arguments.pop("connection_class", None) is not None
        if place.kind is GridKind.CLUSTER:
            arguments.pop("db", None)
            nodes = [ClusterNode(each.host, each.port) for each in place.hosts]  # type: ignore[no-untyped-call]
            return RedisCluster(startup_nodes=nodes, ssl=tls, retry=retry, **arguments, **options)
        own = {"username": place.sentinel_username, "password": place.sentinel_password, "ssl": place.sentinel_tls}
        places = [(each.host, each.port) for each in place.hosts]
        sentinel: Any = Sentinel(places, sentinel_kwargs=own | options)  # type: ignore[no-untyped-call]
        client: Redis = sentinel.master_for(place.master, ssl=tls, retry=retry, **arguments, **options)
        return client
