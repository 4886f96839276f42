"""Durable subscriptions: implements ``gateway.ports.DurableStore``. Each step is one script; see ``durable.lua``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from gateway.adapters.redis import scripts
from gateway.adapters.redis.foreign import ForeignData
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.keys import Keys, short_hash
from gateway.adapters.redis.scripts import Argument, Command
from gateway.core.topics.topics import principal_partition
from gateway.core.types import SessionId
from gateway.ports import (
    MOST_DURABLES,
    MOST_DURABLES_TOGETHER,
    Advance,
    Different,
    Durable,
    DurableName,
    DurableTerms,
    Fenced,
    InUse,
    NotOpened,
    Opened,
    OpenResult,
    Ownership,
)

DURABLE_MARK: Final = "/"
"""Before a durable subscription among what a session consumes from: no queue begins so."""

_NOTHING: Final = "-"
"""In the place of a session or a position that is none."""

_SHARED: Final = "+"
"""In the place of the session of one that is shared."""

_REMOVING: Final = "!"
"""Likewise of one that is shared and being removed."""

_NEVER: Final = 2**53 - 1
"""When one is forgotten that somebody uses."""


class RedisDurables:
    """Durable subscriptions in Redis.

    Args:
        grid: the connection.
        keys: names of all keys.
        foreign: told of what is not the gateway's.
    """

    def __init__(self, *, grid: GridConnection, keys: Keys, foreign: ForeignData) -> None:
        self._grid = grid
        self._batcher = grid.batcher
        self._keys = keys
        self._foreign = foreign

    async def open(
        self,
        ownership: Ownership,
        name: DurableName,
        terms: DurableTerms,
        *,
        start: str | None,
        instead_of: SessionId | None = None,
    ) -> OpenResult:
        """See ``DurableStore.open``."""
        partition, session = principal_partition(name.principal), ownership.session
        reply = await self._call(
            scripts.DURABLE_OPEN(
                *self._keys.durable(name.principal),
                *(self._keys.consuming(partition, session), self._keys.closed[partition]),
                *(self._grid.clock.argument(), *_head(name), session, ownership.epoch, short_hash(session)),
                *("" if start is None else start or _NOTHING, instead_of or "", round(terms.life * 1000)),
                *(MOST_DURABLES, MOST_DURABLES_TOGETHER, _SHARED if terms.shared else _NOTHING, terms.selector),
            )
        )
        match reply:
            case b"fenced":
                raise _fenced(ownership)
            case [b"used", user]:
                return InUse(SessionId(user.decode()))
            case [b"other", selector]:
                return Different(selector.decode())
            case [position, created]:
                return Opened(_position(position), created == 1)
        return NotOpened(reply.decode())

    async def advance(self, ownership: Ownership, name: DurableName, position: str) -> Advance:
        """See ``DurableStore.advance``."""
        reply = await self._call(
            scripts.DURABLE_ADVANCE(
                *self._keys.durable(name.principal),
                *(self._grid.clock.argument(), *_head(name), ownership.session, ownership.epoch, position),
            )
        )
        if reply == b"fenced":
            raise _fenced(ownership)
        return Advance(reply.decode())

    async def release(self, ownership: Ownership, name: DurableName) -> None:
        """See ``DurableStore.release``."""
        command = release_command(
            self._keys, name, ownership.session, self._grid.clock.argument(), epoch=str(ownership.epoch)
        )
        if await self._call(command) == b"fenced":
            raise _fenced(ownership)

    async def remove(self, name: DurableName, *, by: SessionId | None = None) -> InUse | bool:
        """See ``DurableStore.remove``."""
        reply = await self._call(self._remove(name, by or ""))
        return InUse(SessionId(reply.decode())) if isinstance(reply, bytes) else reply == 1

    async def due(self, partition: int, *, limit: int) -> Sequence[Durable]:
        """See ``DurableStore.due``."""
        index = self._keys.durables[partition]
        due = await self._batcher.call(scripts.DURABLE_DUE(index, self._grid.clock.argument(), limit))
        names = [name for name in [self._read_name(index, each) for each in due] if name is not None]
        return [each for each in await self._read(index, names) if each is not None]

    async def begin_removal(self, name: DurableName, *, over: bool) -> bool:
        """See ``DurableStore.begin_removal``."""
        keys = self._keys.durable(name.principal)
        return bool(await self._call(scripts.DURABLE_END(*keys, self._grid.clock.argument(), *_head(name), int(over))))

    async def expire(self, name: DurableName) -> bool:
        """See ``DurableStore.expire``."""
        return bool(await self._call(self._remove(name, _NOTHING)) == 1)

    async def prolong(self, name: DurableName, *, used: int | None = None) -> None:
        """See ``DurableStore.prolong``."""
        await self._call(self._remove(name, _SHARED, used))

    async def find(self, name: DurableName) -> Durable | None:
        """See ``DurableStore.find``."""
        index = self._keys.durables[principal_partition(name.principal)]
        (found,) = await self._read(index, [name])
        return found

    async def page(self, partition: int, *, after: DurableName | None, count: int) -> Sequence[Durable]:
        """See ``DurableStore.page``."""
        index = self._keys.durables[partition]
        members = sorted(await self._batcher.call(("ZRANGE", index, 0, -1)))
        names = [name for name in [self._read_name(index, each) for each in members] if name is not None]
        page = sorted(each for each in names if after is None or each > after)[:count]
        return [each for each in await self._read(index, page) if each is not None]

    # --- inside -------------------------------------------------------------------------------------------------------

    async def _call(self, command: Command) -> Any:
        return await self._batcher.call(command, gated=True)

    def _remove(self, name: DurableName, by: str, used: int | None = None) -> Command:
        keys = self._keys.durable(name.principal)
        return scripts.DURABLE_REMOVE(
            *keys, self._grid.clock.argument(), *_head(name), by, "" if used is None else used
        )

    def _read_name(self, key: str, member: bytes) -> DurableName | None:
        try:
            principal, name = orjson.loads(member)
            return DurableName(str(principal), str(name))
        except ValueError as error:
            self._foreign.skipped(key, repr(member), error)
            return None

    async def _read(self, index: str, names: Sequence[DurableName]) -> list[Durable | None]:
        commands: list[Command] = []
        for each in names:
            mine, _ = self._keys.durable(each.principal)
            commands += [("HGET", mine, each.name), ("ZSCORE", index, _member(each))]
        replies = await self._batcher.call_all(commands)
        return [
            self._durable(name, record, until)
            for name, record, until in zip(names, replies[::2], replies[1::2], strict=True)
        ]

    def _durable(self, name: DurableName, record: bytes | None, until: bytes | None) -> Durable | None:
        if record is None or until is None:
            return None
        try:
            life, made, session, _, position, selector = record.decode().split(" ", 5)
            return Durable(
                name,
                DurableTerms(selector, int(life) / 1000, session in {_SHARED, _REMOVING}),
                _position(position.encode()),
                None if session in {_NOTHING, _SHARED, _REMOVING} else SessionId(session),
                int(made),
                None if int(float(until)) >= _NEVER else int(float(until)),
            )
        except ValueError as error:
            self._foreign.skipped(self._keys.durable(name.principal)[0], repr(name.name), error)
            return None


def release_command(keys: Keys, name: DurableName, session: SessionId, clock: str, *, epoch: str = "") -> Command:
    """Make the command by which a session uses a durable subscription no more; without an epoch if it has ended."""
    consuming = keys.consuming(principal_partition(name.principal), session)
    return scripts.DURABLE_RELEASE(*keys.durable(name.principal), consuming, clock, *_head(name), session, epoch)


def read_member(member: str) -> DurableName:
    """Read a durable subscription among what a session consumes from.

    Raises:
        ValueError: it is none.
    """
    principal, name = orjson.loads(member.removeprefix(DURABLE_MARK))
    return DurableName(principal, name)


def _member(name: DurableName) -> str:
    return orjson.dumps(list(name)).decode()


def _head(name: DurableName) -> tuple[Argument, ...]:
    return (name.name, _member(name))


def _position(stored: bytes) -> str:
    return "" if stored == _NOTHING.encode() else stored.decode()


def _fenced(ownership: Ownership) -> Fenced:
    return Fenced(f"{ownership.owner} with epoch {ownership.epoch} does not own session {ownership.session} any more")
