"""Streams of server-sent events: what a reader asks for, and the text that it is sent (docs: reference/client-api.md).

```text
packets of a session ─▶ StreamWriter ─▶ id: 17-1-88                 where the reader is then, in all topic partitions
                                        data: {"topic": …}          an update
```

The format is that of the HTML standard, section 9.2. Where a reader is, is told as the event ids of one event in each
partition, as histories tell it, by the rules that clients with sessions go by (protocol 10.6): a live update that took
the place of none moves its partition's place, current values and folded updates move none, and a place begins when all
current values have been sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

import orjson

from gateway.core.types import EventId, PacketId
from gateway.core.wire.codec.calls import read_places
from gateway.core.wire.codec.decoding import decode_from_server
from gateway.core.wire.errors import RequestRefused
from gateway.core.wire.packets import Notice, NoticeCode, SessionPacket, Update

MOST_SELECTORS: Final = 100
"""Selectors of one stream; all of them are in its URL."""

SELECTOR: Final = "selector"
AFTER: Final = "after"
"""Parameters of a stream: which topics, as often as wanted, and from where on if there is no ``Last-Event-ID``."""

KEEP_ALIVE: Final = b":\n\n"
"""A comment, which readers ignore."""


class StreamQuery(NamedTuple):
    """What a reader asks for.

    Attributes:
        selectors: texts, not yet validated.
        after: by topic partition, the event up to which all is known.
    """

    selectors: tuple[str, ...]
    after: Mapping[int, EventId]


def read_stream_query(query: str, last_event_id: str) -> StreamQuery:
    """Read what a reader asks for.

    Args:
        query: of the URL, without the question mark.
        last_event_id: value of the header, which counts if there is one: browsers repeat the URL, and add it.

    Raises:
        RequestRefused: the message says what is wrong.
    """
    try:
        pairs = parse_qsl(
            query,
            keep_blank_values=True,
            strict_parsing=bool(query),
            errors="strict",
            max_num_fields=MOST_SELECTORS + 1,
        )
    except ValueError:
        raise RequestRefused(
            f"the query of the URL cannot be read; it is like {SELECTOR}=prices/**&{SELECTOR}=status/*, with "
            f"{MOST_SELECTORS} selectors at most"
        ) from None
    selectors = tuple(dict.fromkeys(value for name, value in pairs if name == SELECTOR))
    given = [value for name, value in pairs if name == AFTER]
    if (
        not 0 < len(selectors) <= MOST_SELECTORS
        or len(given) > 1
        or any(name not in {SELECTOR, AFTER} for name, _ in pairs)
    ):
        raise RequestRefused(
            f"the query has 1 to {MOST_SELECTORS} times '{SELECTOR}', '{AFTER}' once at most, and nothing else"
        )
    if last_event_id:
        return StreamQuery(selectors, read_places(last_event_id, "Last-Event-ID"))
    return StreamQuery(selectors, read_places(given[0] if given else "", AFTER))


class StreamWriter:
    """Writes what one reader is sent.

    Attributes:
        places: by topic partition, the event up to which the reader has been sent all that it is to have.
    """

    __slots__ = ("_named", "places")

    def __init__(self) -> None:
        self.places: dict[int, EventId] = {}
        self._named: bytes | None = None
        """The last id that the reader was told on this connection. Browsers keep the one of the connection before."""

    def begin(self, places: Mapping[int, EventId], node: str, replayed: bool | Mapping[int, str] | None) -> bytes:
        """Write the first event.

        Args:
            places: where the reader is.
            node: that serves it.
            replayed: whether all that the reader has missed follows; if not of all partitions, why not by partition.
                None if it named no place.
        """
        self.places = dict(places)
        told = {str(number): why for number, why in replayed.items()} if isinstance(replayed, Mapping) else replayed
        return self._event("open", {"node": node} if told is None else {"node": node, "replayed": told})

    def take(self, message: bytes) -> tuple[bytes, PacketId]:
        """Write what a session would be sent.

        Args:
            message: of the protocol.

        Returns:
            The text; and the id of the last packet in the message, which is 0 if there is none with an id.
        """
        text: list[bytes] = []
        last = PacketId(0)
        for packet in decode_from_server(message):
            if not isinstance(packet, SessionPacket):
                continue
            last = packet.id
            match packet.body:
                case Update() as update:
                    text.append(self._update(update))
                case Notice(code=NoticeCode.SNAPSHOTS_COMPLETE) as notice:
                    text.append(self._complete(notice.positions or {}))
                case Notice(code=NoticeCode.VALUES_REREAD | NoticeCode.GRID_LOST_WRITES) as notice:
                    text.append(self._gap(notice.partitions, notice.message))
        return b"".join(text), last

    def missed(self, partitions: Iterable[int]) -> bytes:
        """Write that updates of some partitions were missed, and that current values follow."""
        return self._gap(sorted(partitions), "Updates were missed; current values follow in place of each of them.")

    def idle(self, places: Mapping[int, EventId]) -> bytes:
        """Write what tells a reader that it is connected still, and how far it is.

        Args:
            places: up to where it has been sent everything.
        """
        for number, event in places.items():
            self._move(number, event)
        return self._id() + b"\n" if self._is_news() else KEEP_ALIVE

    # --- Inside -------------------------------------------------------------------------------------------------------

    def _update(self, update: Update) -> bytes:
        content: dict[str, object] = {"topic": update.topic, "version": update.version, "event": update.event}
        if update.snapshot:
            content["snapshot"] = True
        if update.folded:
            content["folded"] = update.folded
        if update.removed:
            content["removed"] = True
        content["value"] = update.value
        if update.event and not update.snapshot and not update.folded:
            self._move(int(update.event.partition("-")[0]), update.event)
        return self._event("", content)

    def _complete(self, positions: Mapping[int, EventId]) -> bytes:
        self.places.update(positions)
        return self._event("complete", {"partitions": sorted(positions)})

    def _gap(self, partitions: Iterable[int] | None, message: str) -> bytes:
        gone = sorted(self.places if partitions is None else partitions)
        for number in gone:
            self.places.pop(number, None)
        return self._event("gap", {"partitions": gone, "message": message})

    def _move(self, number: int, event: EventId) -> None:
        known = self.places.get(number)
        if known is not None and _place(event) > _place(known):
            self.places[number] = event

    def _event(self, name: str, content: Mapping[str, object]) -> bytes:
        kind = b"event: %b\n" % name.encode() if name else b""
        return b"%b%bdata: %b\n\n" % (self._id() if self._is_news() else b"", kind, orjson.dumps(content))

    def _is_news(self) -> bool:
        return self._named != self._position()

    def _id(self) -> bytes:
        self._named = self._position()
        return b"id: %b\n" % self._named

    def _position(self) -> bytes:
        return ",".join([self.places[number] for number in sorted(self.places)]).encode()


def write_retry(seconds: float) -> bytes:
    """Write after how many seconds a reader is to come back when its connection is lost."""
    return b"retry: %d\n\n" % round(seconds * 1000)


def write_end(code: str, message: str) -> bytes:
    """Write the last event of a stream.

    Args:
        code: why it ends.
        message: the same in a sentence.
    """
    return b"event: end\ndata: %b\n\n" % orjson.dumps({"code": code, "message": message})


def _place(event: EventId) -> tuple[int, int]:
    """Read where in the stream of its partition an event is: generation of the grid, and number."""
    _, generation, sequence = event.split("-")
    return int(generation), int(sequence)
