"""Zones, interest and links in the grid: implements ``gateway.ports.ZoneStore``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from typing import Final

import orjson

from gateway.adapters.redis import scripts
from gateway.adapters.redis.foreign import ForeignData
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.named_leases import NamedLeases
from gateway.adapters.redis.news import CHANGES_KEPT, News, follow_table
from gateway.adapters.redis.scripts import Argument
from gateway.adapters.redis.tail import RedisTail
from gateway.core.topics.selectors import Selector, parse_selector
from gateway.core.types import GridGeneration, NodeRef
from gateway.core.wire.errors import InvalidSelector
from gateway.core.zones.compaction import MOST_SELECTORS
from gateway.core.zones.records import (
    ENCODING_VERSION,
    MOST_JOINS,
    MOST_MEMBERS,
    MOST_ZONES,
    Join,
    Member,
    Membership,
    Record,
    UnreadableRecord,
    Zone,
    ZoneUid,
    decode_record,
    encode_record,
)
from gateway.core.zones.routes import ClusterId
from gateway.ports import (
    MOST_CARRIED,
    Carrier,
    LeaseLost,
    LinkName,
    OtherZone,
    StreamPosition,
    TooManyRecords,
    ZoneTable,
)

_BOUNDS: Final = f"zone:{MOST_ZONES},member:{MOST_MEMBERS},join:{MOST_JOINS},membership:1"
"""How many records of each kind there may be, as the scripts take it."""

_LEFT: Final = orjson.dumps({"v": ENCODING_VERSION, "name": "", "urls": [], "fingerprints": [], "left": True})
"""What is held of a member that has left, behind its rank."""

_OTHER_GENERATION: Final = -1
_NO_ROOM: Final = -2
_OTHER_ZONE: Final = -3
_NO_LEASE: Final = -2
_TOO_MANY_SELECTORS: Final = -3
"""What scripts answer; see there."""

_SHOWN_BYTES: Final = 60
"""Of a name that cannot be read, in a log event."""


class RedisZones:
    """Zones, interest and links of the cluster.

    Args:
        grid: for commands, and to be told of a grid that does not fit.
        keys: names of all keys.
        tail: reads the changes.
        foreign: told of what is not the gateway's, or of a later release.
    """

    def __init__(self, *, grid: GridConnection, keys: Keys, tail: RedisTail, foreign: ForeignData) -> None:
        self._grid = grid
        self._keys = keys
        self._tail = tail
        self._foreign = foreign
        self._news = News(keys.zones.news, _pair, foreign)
        self._interest_news = News(keys.zones.interest_news, _pair, foreign)
        self._leases = NamedLeases(
            grid, generation=keys.grid, held=keys.zones.carriers, most=MOST_CARRIED, name=LinkName, holder=Carrier
        )
        self._read_from = GridGeneration(0)
        grid.when_writes_are_lost(self._lose)

    # --- Records ------------------------------------------------------------------------------------------------------

    async def follow(self) -> AsyncIterator[ZoneTable]:
        """See ``ZoneStore.follow``."""
        rows: dict[str, Record] = {}
        async with aclosing(follow_table(self._grid, self._tail, self._read_zones)) as news:
            async for each in news:
                if isinstance(each, tuple):
                    for name, held in each:
                        self._change(rows, name, held)
                    yield ZoneTable.of(rows.values())
                else:
                    rows = {}
                    for name, held in each.items():
                        self._change(rows, name, held)
                    lost = self._read_from not in {0, self._grid.generation}
                    self._read_from = self._grid.generation
                    yield ZoneTable.of(rows.values(), lost_writes=lost)

    async def read(self) -> ZoneTable:
        """See ``ZoneStore.read``."""
        rows: dict[str, Record] = {}
        _, held = await self._read_all(self._keys.zones.records, self._keys.zones.news, "zone_revision")
        for name, value in held.items():
            self._change(rows, name, value)
        return ZoneTable.of(rows.values())

    async def put(self, *records: Zone | Member | Join) -> int:
        """See ``ZoneStore.put``."""
        written, _ = await self._put(records, "all")
        return written

    async def remove_join(self, name: str) -> bool:
        """See ``ZoneStore.remove_join``."""
        keys = self._keys
        reply = await self._grid.batcher.call(
            scripts.ZONE_DROP(
                *(keys.grid, keys.zones.records, keys.zones.news, self._grid.generation, CHANGES_KEPT, f"join {name}")
            )
        )
        self._check(*reply)
        return bool(reply[0])

    async def enter(self, zone: Zone, member: Member, *, made: float) -> None:
        """See ``ZoneStore.enter``."""
        keys = self._keys
        reply = await self._grid.batcher.call(
            scripts.ZONE_ENTER(
                *(keys.grid, keys.zones.records, keys.zones.news, self._grid.generation, CHANGES_KEPT, _BOUNDS),
                *(zone.uid, encode_record(zone), member.cluster, encode_record(member)),
                encode_record(Membership(zone=zone.uid, made=made)),
            )
        )
        self._check(*reply[:2])
        if reply[0] == _NO_ROOM:
            raise TooManyRecords(f"the grid holds at most {MOST_ZONES:,} zones and {MOST_MEMBERS:,} members")
        if reply[0] == _OTHER_ZONE:
            raise OtherZone(ZoneUid(reply[2].decode()))

    async def leave(self, cluster: ClusterId, *, made: float) -> ZoneUid | None:
        """See ``ZoneStore.leave``."""
        keys = self._keys
        reply = await self._grid.batcher.call(
            scripts.ZONE_LEAVE(
                *(keys.grid, keys.zones.records, keys.zones.news, self._grid.generation, CHANGES_KEPT, cluster),
                *(encode_record(Membership(zone=None, made=made)), _LEFT),
            )
        )
        self._check(*reply[:2])
        return ZoneUid(reply[2].decode()) if reply[0] else None

    async def merge(self, members: Sequence[Member], *, own: ClusterId) -> int:
        """See ``ZoneStore.merge``."""
        written, left_out = await self._put(members, "some", own)
        if left_out:
            raise TooManyRecords(f"the grid holds at most {MOST_MEMBERS:,} members of zones")
        return written

    async def restore(self, records: Sequence[Record]) -> int:
        """See ``ZoneStore.restore``."""
        written, _ = await self._put(records, "some")
        return written

    async def _put(self, records: Sequence[Record], mode: str, own: str = "") -> tuple[int, int]:
        latest: dict[str, Record] = {}
        for each in records:
            if each.row not in latest or latest[each.row].rank < each.rank:
                latest[each.row] = each
        if not latest:
            return 0, 0
        keys = self._keys
        reply = await self._grid.batcher.call(
            scripts.ZONE_PUT(
                *(
                    keys.grid,
                    keys.zones.records,
                    keys.zones.news,
                    self._grid.generation,
                    CHANGES_KEPT,
                    _BOUNDS,
                    mode,
                    own,
                ),
                *(part for row, each in latest.items() for part in (row, encode_record(each))),
            )
        )
        self._check(*reply[:2])
        if reply[0] == _NO_ROOM:
            raise TooManyRecords(
                f"the grid holds at most {MOST_ZONES:,} zones, {MOST_MEMBERS:,} members and {MOST_JOINS:,} joins"
            )
        return reply[0], reply[2]

    async def _read_zones(self) -> tuple[dict[bytes, bytes], News[tuple[bytes, bytes]]]:
        # Lost, should the grid be another one before the answer is here.
        news = self._news = News(self._keys.zones.news, _pair, self._foreign)
        news.revision, rows = await self._read_all(self._keys.zones.records, self._keys.zones.news, "zone_revision")
        return rows, news

    async def _read_all(self, held: str, news: str, revision: str) -> tuple[int, dict[bytes, bytes]]:
        reply = await self._grid.batcher.call(
            scripts.ZONE_READ(self._keys.grid, held, news, self._grid.generation, revision)
        )
        number, swept, *rows = reply
        if number == _OTHER_GENERATION:
            raise self._grid.stale()
        self._foreign.swept(news, swept)
        return number, dict(zip(rows[::2], rows[1::2], strict=True))

    def _change(self, rows: dict[str, Record], name: bytes, held: bytes) -> None:
        """Take a row in; what a later release wrote is as good as removed."""
        try:
            row = name.decode()
            if held:
                rows[row] = decode_record(row, held)
                return
        except (UnreadableRecord, UnicodeDecodeError) as error:
            self._foreign.skipped(self._keys.zones.records, repr(name[:_SHOWN_BYTES]), error)
            row = name.decode(errors="replace")
        rows.pop(row, None)

    def _check(self, reply: int, swept: int, news: str = "") -> None:
        if reply == _OTHER_GENERATION:
            raise self._grid.stale()
        self._foreign.swept(news or self._keys.zones.news, swept)

    # --- Interest -----------------------------------------------------------------------------------------------------

    async def put_interest(self, node: NodeRef, selectors: Collection[Selector], *, keep: float) -> None:
        """See ``ZoneStore.put_interest``."""
        await self._tell(node, keep, "whole", selectors, ())

    async def change_interest(
        self, node: NodeRef, *, added: Collection[Selector], dropped: Collection[Selector], keep: float
    ) -> None:
        """See ``ZoneStore.change_interest``."""
        await self._tell(node, keep, "change", added, dropped)

    async def _tell(
        self, node: NodeRef, keep: float, mode: str, added: Collection[Selector], dropped: Collection[Selector]
    ) -> None:
        keys = self._keys
        selectors: list[Argument] = [each.text for each in (*added, *dropped)]
        reply, swept = await self._grid.batcher.call(
            scripts.INTEREST_PUT(
                *(keys.grid, keys.zones.interest, keys.zones.interest_tellers, keys.leases, keys.zones.interest_news),
                *(self._grid.generation, CHANGES_KEPT, str(node), max(0, round(keep * 1000)), MOST_SELECTORS),
                *(mode, len(added)),
                *selectors,
            )
        )
        self._check(reply, swept, keys.zones.interest_news)
        if reply == _NO_LEASE:
            raise LeaseLost(f"{node} has no lease, so that nobody would forget its interest when it is gone")
        if reply == _TOO_MANY_SELECTORS:
            raise ValueError(f"a node tells at most {MOST_SELECTORS:,} selectors")

    async def follow_interest(self) -> AsyncIterator[Mapping[NodeRef, AbstractSet[Selector]]]:
        """See ``ZoneStore.follow_interest``."""
        told: dict[NodeRef, frozenset[Selector]] = {}
        async with aclosing(follow_table(self._grid, self._tail, self._read_interest)) as news:
            async for each in news:
                if not isinstance(each, tuple):
                    told = _same_objects(self._by_node(each, {}), told)
                else:
                    told = self._by_node(dict(each), told)
                yield dict(told)

    async def _read_interest(self) -> tuple[dict[bytes, bytes], News[tuple[bytes, bytes]]]:
        news = self._interest_news = News(self._keys.zones.interest_news, _pair, self._foreign)
        news.revision, rows = await self._read_all(
            self._keys.zones.interest, self._keys.zones.interest_news, "interest_revision"
        )
        return rows, news

    def _by_node(
        self, rows: Mapping[bytes, bytes], told: Mapping[NodeRef, frozenset[Selector]]
    ) -> dict[NodeRef, frozenset[Selector]]:
        """Take rows into what nodes have told. The sets of the others stay the same objects."""
        changed: dict[NodeRef, set[Selector]] = {}
        for name, held in rows.items():
            try:
                text, _, path = name.decode().partition(" ")
                node, selector = NodeRef.parse(text), parse_selector(path)
            except (ValueError, InvalidSelector) as error:
                self._foreign.skipped(self._keys.zones.interest, repr(name[:_SHOWN_BYTES]), error)
                continue
            selectors = changed.setdefault(node, set(told.get(node, ())))
            (selectors.add if held else selectors.discard)(selector)
        found = {**told, **{node: frozenset(each) for node, each in changed.items()}}
        return {node: each for node, each in found.items() if each}

    async def sweep_interest(self) -> int:
        """See ``ZoneStore.sweep_interest``."""
        keys = self._keys
        reply: list[int] = await self._grid.batcher.call(
            scripts.INTEREST_SWEEP(
                *(keys.grid, keys.zones.interest, keys.zones.interest_tellers, keys.leases, keys.zones.interest_news),
                *(self._grid.clock.argument(), self._grid.generation, CHANGES_KEPT),
            )
        )
        kept, swept = reply
        self._check(kept, swept, keys.zones.interest_news)
        return kept

    def _lose(self) -> None:
        self._news.lose()
        self._interest_news.lose()

    # --- Carriers and cursors -----------------------------------------------------------------------------------------

    async def carry(self, node: NodeRef, names: Collection[LinkName], *, lease: float) -> Mapping[LinkName, Carrier]:
        """See ``ZoneStore.carry``."""
        carried = await self._leases.take(node, names, lease=lease)
        if carried is None:
            raise TooManyRecords(f"the links of a cluster are at most {MOST_CARRIED:,}, shares of them included")
        return carried

    async def release(self, node: NodeRef, names: Collection[LinkName]) -> None:
        """See ``ZoneStore.release``."""
        await self._leases.release(node, names)

    async def carriers(self) -> Mapping[LinkName, Carrier]:
        """See ``ZoneStore.carriers``."""
        return await self._leases.holders()

    async def cursors(self, link: LinkName) -> Mapping[int, StreamPosition]:
        """See ``ZoneStore.cursors``."""
        key = self._keys.zones.cursors(link)
        rows = await self._grid.batcher.call(("HGETALL", key))
        positions: dict[int, StreamPosition] = {}
        for partition, place in zip(rows[::2], rows[1::2], strict=True):
            try:
                if partition:
                    generation, sequence = map(int, place.split(b"-"))
                    positions[int(partition)] = StreamPosition(GridGeneration(generation), sequence)
            except ValueError as error:
                self._foreign.skipped(key, repr(partition[:_SHOWN_BYTES]), error)
        return positions

    async def advance(self, link: LinkName, term: int, positions: Mapping[int, StreamPosition]) -> bool:
        """See ``ZoneStore.advance``."""
        places: list[Argument] = []
        for partition, position in positions.items():
            places += (partition, f"{position.grid_generation}-{position.sequence}")
        reply = await self._grid.batcher.call(
            scripts.CURSOR_ADVANCE(
                self._keys.grid, self._keys.zones.cursors(link), self._grid.generation, term, *places
            )
        )
        if reply == _OTHER_GENERATION:
            raise self._grid.stale()
        return bool(reply)

    async def forget_link(self, link: LinkName) -> None:
        """See ``ZoneStore.forget_link``."""
        await self._grid.batcher.call_all(
            [("DEL", self._keys.zones.cursors(link)), ("HDEL", self._keys.zones.carriers, link)]
        )


def _pair(name: bytes, held: bytes) -> tuple[bytes, bytes]:
    return name, held


def _same_objects(
    found: dict[NodeRef, frozenset[Selector]], before: Mapping[NodeRef, frozenset[Selector]]
) -> dict[NodeRef, frozenset[Selector]]:
    return {node: before[node] if before.get(node) == each else each for node, each in found.items()}
