"""Hooks in the grid: implements ``gateway.ports.HookStore``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from gateway.adapters.redis import scripts
from gateway.adapters.redis.foreign import ForeignData
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.named_leases import NamedLeases
from gateway.core.hooks.cursor import Cursor, Entry, Page, read_cursor
from gateway.core.hooks.hook import HookName
from gateway.core.journal import JOURNAL_PARTITIONS
from gateway.core.types import NodeRef
from gateway.ports import MOST_HELD, GridUnavailable, HookHolder, HookTaken

_AGAIN: Final = b"again "
"""Begins the field that asks for another attempt."""

_NONE: Final = b"*"
"""Incarnation of a cursor that is of no stream yet; see ``hook_read.lua``."""


class RedisHooks:
    """Leases and cursors of hooks.

    Args:
        grid: for commands, and to be told of a grid that does not fit.
        keys: names of all keys.
        foreign: told of what is not the gateway's.
    """

    def __init__(self, *, grid: GridConnection, keys: Keys, foreign: ForeignData) -> None:
        self._grid = grid
        self._keys = keys
        self._foreign = foreign
        self._leases = NamedLeases(
            grid, generation=keys.grid, held=keys.hook_holders, most=MOST_HELD, name=HookName, holder=HookHolder
        )

    async def hold(self, node: NodeRef, names: Collection[HookName], *, lease: float) -> Mapping[HookName, HookHolder]:
        """See ``HookStore.hold``."""
        held = await self._leases.take(node, names, lease=lease)
        if held is None:
            raise ValueError(f"a cluster has at most {MOST_HELD} hooks")
        return held

    async def release(self, node: NodeRef, names: Collection[HookName]) -> None:
        """See ``HookStore.release``."""
        await self._leases.release(node, names)

    async def holders(self) -> Mapping[HookName, HookHolder]:
        """See ``HookStore.holders``."""
        return await self._leases.holders()

    async def read(self, name: HookName, term: int, *, known: bool, entries: int) -> Sequence[Page]:
        """See ``HookStore.read``."""
        keys = self._keys
        replies = await self._grid.batcher.submit(
            [
                scripts.HOOK_READ(
                    *(keys.journal[partition], keys.journal_state[partition]),
                    *(name, term, int(known), entries),
                )
                for partition in range(JOURNAL_PARTITIONS)
            ],
            patient=True,
        )
        pages = []
        for partition, reply in enumerate(replies):
            if reply == b"taken":
                raise HookTaken(f"another node delivers for the hook {name}")
            if isinstance(reply, GridUnavailable):
                raise reply
            # What stands in the place of one stream harms that one alone.
            try:
                if not isinstance(reply, Exception):
                    pages.append(_page(partition, reply))
                    continue
                error = reply
            except ValueError as unreadable:
                error = unreadable
            self._foreign.skipped(keys.journal_state[partition], f"hook:{name}", error)
        return pages

    async def advance(self, name: HookName, term: int, cursors: Mapping[int, Cursor]) -> None:
        """See ``HookStore.advance``."""
        replies = await self._grid.batcher.call_all(
            [
                scripts.HOOK_ADVANCE(
                    *(self._keys.journal_state[partition], name, term),
                    *(cursor.incarnation, cursor.text, cursor.passed),
                )
                for partition, cursor in cursors.items()
            ]
        )
        if not all(replies):
            raise HookTaken(f"another node delivers for the hook {name}, or it was forgotten")

    async def tell(self, name: HookName, status: bytes) -> None:
        """See ``HookStore.tell``."""
        await self._grid.batcher.call(("HSET", self._keys.hooks, name, status))

    async def told(self) -> Mapping[HookName, bytes]:
        """See ``HookStore.told``."""
        rows = await self._grid.batcher.call(("HGETALL", self._keys.hooks))
        return {
            HookName(name.decode(errors="replace")): said
            for name, said in zip(rows[::2], rows[1::2], strict=True)
            if not name.startswith(_AGAIN)
        }

    async def behind(self, name: HookName) -> int | None:
        """See ``HookStore.behind``."""
        rows = await self._grid.batcher.call_all(
            [("HMGET", each, "incarnation", "events", f"hook:{name}") for each in self._keys.journal_state]
        )
        found = None
        for incarnation, events, held in rows:
            _, of, _, passed = (*(held or b"").split(b" "), b"", b"", b"", b"")[:4]
            if passed.isdigit():
                left = int(events) if (events or b"").isdigit() else 0
                found = (found or 0) + max(0, left - (int(passed) if of in {incarnation, _NONE} else 0))
        return found

    async def ask_again(self, name: HookName) -> bool:
        """See ``HookStore.ask_again``."""
        if not await self._grid.batcher.call(("HEXISTS", self._keys.hooks, name)):
            return False
        await self._grid.batcher.call(("HSET", self._keys.hooks, _AGAIN + name.encode(), "1"))
        return True

    async def asked(self) -> Collection[HookName]:
        """See ``HookStore.asked``."""
        rows = await self._grid.batcher.call(("HKEYS", self._keys.hooks))
        return {HookName(each[len(_AGAIN) :].decode()) for each in rows if each.startswith(_AGAIN)}

    async def answered(self, name: HookName) -> None:
        """See ``HookStore.answered``."""
        await self._grid.batcher.call(("HDEL", self._keys.hooks, _AGAIN + name.encode()))

    async def forget(self, name: HookName) -> bool:
        """See ``HookStore.forget``."""
        keys = self._keys
        # Not before its cursors: they hold back what the reader of the journal trims.
        if name in await self.holders():
            return False
        await self._grid.batcher.call_all([scripts.HOOK_DROP(each, name) for each in keys.journal_state])
        return bool(
            await self._grid.batcher.call(
                scripts.HOOK_FORGET(keys.hook_holders, keys.hooks, self._grid.clock.argument(), name)
            )
        )


def _page(partition: int, reply: Any) -> Page:
    incarnation, of, place, passed, total, entries = reply
    known = "" if of == _NONE else of.decode()
    return Page(
        partition=partition,
        incarnation=incarnation.decode(),
        cursor=read_cursor(known, place.decode(), int(passed)),
        entries=tuple(_entry(name, fields) for name, fields in entries if fields),
        total=int(total),
    )


def _entry(name: bytes, fields: list[bytes]) -> Entry:
    generation, _, sequence = name.partition(b"-")
    told = dict(zip(fields[::2], fields[1::2], strict=True))
    count, total = told.get(b"count", b""), told.get(b"total", b"")
    return Entry(
        id=(int(generation), int(sequence)),
        events=told.get(b"events", b""),
        count=int(count) if count.isdigit() else 0,
        total=int(total) if total.isdigit() else None,
    )
