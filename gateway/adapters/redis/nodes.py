"""Leases and takeovers: implements ``gateway.ports.NodeDirectory``."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import orjson

from gateway.adapters.redis import scripts
from gateway.adapters.redis.clock import TOLERANCE_MS
from gateway.adapters.redis.foreign import ForeignData
from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.keys import Keys
from gateway.adapters.redis.tail import RedisTail
from gateway.adapters.redis.write_gate import WriteGate
from gateway.catalogue.log_events import GRID_CLOCK_STEPPED
from gateway.catalogue.metrics import GRID_CLOCK_SHIFT, GRID_CLOCK_STEPS
from gateway.core.types import GridGeneration, NodeRef
from gateway.core.wire.codes import MirrorMode
from gateway.ports import (
    GONE_BACKUPS,
    LOST_NODES,
    LOST_SECONDS,
    Backup,
    EventLog,
    ExpiredLease,
    GridUnavailable,
    LeaseLost,
    LeaseTable,
    LostNode,
    Master,
    MasterWish,
    Metrics,
    NodeEntry,
    NodeReport,
    Ownership,
    SavedUntil,
    Takeover,
    TakeoverProgress,
    ZoneLinkReport,
)

_REPORTED: Final[Mapping[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(("listen", "admin", "version", "link", "failure_domain", "zone_url", "zone_fingerprint"), str),
    **dict.fromkeys(("started", "lag"), (int, float)),
    **dict.fromkeys(("connected", "disconnected", "session_bytes"), int),
    "draining": bool,
    "reasons": list,
    "link_protocols": list,
    "suspects": list,
    "urls": list,
    "zone_links": list,
    "largest": dict,
}
"""What a report tells, and of what types that is in JSON."""

if wrong := _REPORTED.keys() ^ {each.name for each in dataclasses.fields(NodeReport)}:
    raise AssertionError(f"not in both the report and its types: {sorted(wrong)}")

_RECORDED: Final = 1
_CONTRADICTED: Final = -1
"""What ``clock_set.lua`` answers."""

_NOBODY: Final = "-"
"""In the place of who has the right to a takeover, while what is transient is left alone."""

_SHOWN_BYTES: Final = 60
"""Of what should be the name of a node and is none, in a log event."""

INBOX_MESSAGES: Final = 1_000
"""Messages that an inbox keeps, about; a node that reads so late that more were written learns the rest by fencing."""


class _Step(NamedTuple):
    """The clock of Redis was set, and that was recorded in the grid.

    Attributes:
        step: by how much, in milliseconds.
        shift: by how much it is ahead of the time of the grid since, likewise.
    """

    step: int
    shift: int


class RedisNodes:
    """Who is there, by the grid's clock.

    Args:
        node: the node this process is.
        grid: for commands, and to be told of a grid that does not fit.
        keys: names of all keys.
        write_gate: the lease of *node*, as the gate sees it.
        tail: reads the inbox.
        foreign: told of what is not the gateway's.
        metrics: where it is counted that the clock of Redis was set.
        log: where that is told.
    """

    def __init__(
        self,
        *,
        node: NodeRef,
        grid: GridConnection,
        keys: Keys,
        write_gate: WriteGate,
        tail: RedisTail,
        foreign: ForeignData,
        metrics: Metrics,
        log: EventLog,
    ) -> None:
        self._clock = grid.clock
        self._metrics = metrics
        self._log = log
        metrics.watch(GRID_CLOCK_SHIFT, lambda: self._clock.shift / 1000)
        self._node = node
        self._grid = grid
        self._batcher = grid.batcher
        self._keys = keys
        self._write_gate = write_gate
        self._tail = tail
        self._foreign = foreign
        self._unanswered: _Step | None = None
        """What this node had recorded, perhaps: there was no answer."""

    def time_in_doubt(self) -> bool:
        """See ``NodeDirectory.time_in_doubt``."""
        return not self._clock.is_sure

    async def join(self, node: NodeRef, *, lease: float, saved_ago: float | None = None) -> None:
        """See ``NodeDirectory.join``."""
        keys = self._keys
        asked = self._write_gate.now()
        term = await self._batcher.call(
            scripts.NODE_JOIN(
                *(keys.grid, keys.leases, keys.members, keys.takeovers, keys.renewed, keys.lost, keys.saved),
                *(self._clock.argument(), str(node), _milliseconds(lease), self._grid.seal),
                self._saved_until(saved_ago),
            )
        )
        if term == b"stale":
            raise self._grid.stale()
        if node == self._node:
            self._clock.doubt = lease * 1000
            self._write_gate.hold(until=asked + lease, term=term)

    async def renew(
        self,
        node: NodeRef,
        *,
        lease: float,
        watch: float = 0.0,
        wish: MasterWish = MasterWish.KEEP,
        saved_ago: float | None = None,
    ) -> LeaseTable:
        """See ``NodeDirectory.renew``."""
        keys, clock = self._keys, self._clock
        asked, asked_locally = self._write_gate.now(), clock.local()
        reply = await self._batcher.call(
            scripts.NODE_RENEW(
                *(
                    keys.grid,
                    keys.leases,
                    keys.members,
                    keys.renewed,
                    keys.clocks,
                    keys.takeovers,
                    keys.master,
                    keys.saved,
                ),
                *(clock.argument(), str(node), _milliseconds(lease), _milliseconds(watch) if watch else 0),
                *(clock.last, clock.shift, clock.since, clock.age(), wish.value, self._saved_until(saved_ago)),
                int(self._batcher.has_waited()),
            )
        )
        seal, said, shift, *looked = reply
        answered_locally = clock.local()
        if seal.decode() != self._grid.seal:
            # Whether the lease has expired, this grid does not know: it was emptied, or others have adopted it anew.
            raise self._grid.stale()
        if node == self._node:
            if looked:
                self._write_gate.hold(until=asked + lease, term=looked[2])
            else:
                self._write_gate.lose()
            await self._see_to_clock(said, shift, asked_locally, answered_locally)
        if not looked:
            raise LeaseLost(f"the lease of {node} has expired")
        alive, expired, _, watched, master, term, saved, outage_over = looked
        # It is among those who hold a lease, so it is not looked at whether its name is one.
        found = Master(NodeRef.parse(master.decode()), term) if master else None
        with_lease = (self._nodes(alive), self._nodes(expired))
        return LeaseTable(
            *with_lease, watched=bool(watched), master=found, saved=_saved({*alive, *expired}, saved, outage_over)
        )

    async def leave(self, node: NodeRef) -> None:
        """See ``NodeDirectory.leave``."""
        keys = self._keys
        if node == self._node:
            self._write_gate.lose()
        await self._batcher.call(
            scripts.NODE_LEAVE(
                *(keys.leases, keys.members, keys.takeovers, keys.inbox(node), keys.reports, keys.clocks, keys.backups),
                *(keys.saved, self._clock.argument(), str(node), GONE_BACKUPS),
            )
        )

    async def take_over(self, expired: NodeRef, *, by: NodeRef, within: float) -> ExpiredLease | None:
        """See ``NodeDirectory.take_over``."""
        keys = self._keys
        won = await self._batcher.call(
            scripts.NODE_TAKE_OVER(
                *(keys.leases, keys.members, keys.takeovers, keys.grid, keys.saved, self._clock.argument()),
                *(str(expired), str(by), _milliseconds(within)),
            )
        )
        if not won:
            return None
        term, length, ago, progress, unsaved = won
        self._write_gate.expired[expired] = term
        return ExpiredLease(length / 1000, ago / 1000, _progress(progress), unsaved=bool(unsaved))

    async def keep_takeover(self, expired: NodeRef, *, by: NodeRef, within: float, progress: TakeoverProgress) -> bool:
        """See ``NodeDirectory.keep_takeover``."""
        kept = await self._batcher.call(
            scripts.NODE_STAGE(
                *(self._keys.takeovers, self._clock.argument(), str(expired), str(by), _milliseconds(within)),
                f"{progress.stage} {progress.step} {progress.sessions} {progress.generation}",
            )
        )
        return bool(kept)

    async def clean(self, expired: NodeRef, *, by: NodeRef, within: float) -> TakeoverProgress | None:
        """See ``NodeDirectory.clean``."""
        won = await self._batcher.call(
            scripts.NODE_CLEAN(
                *(self._keys.leases, self._keys.takeovers, self._clock.argument()),
                *(str(expired), str(by), _milliseconds(within)),
            )
        )
        return _progress(won[0]) if won else None

    async def takeovers(self) -> list[Takeover]:
        """See ``NodeDirectory.takeovers``."""
        key = self._keys.takeovers
        now, *entries = await self._batcher.call(scripts.NODE_TAKEOVERS(key, self._clock.argument()))
        found: list[Takeover] = []
        for name, entry in zip(entries[::2], entries[1::2], strict=True):
            try:
                ends, by, progress = [*entry.decode().split(" ", 2), ""][:3]
                taker = None if by == _NOBODY else NodeRef.parse(by)
                found.append(
                    Takeover(
                        NodeRef.parse(name.decode()), taker, (int(ends) - now) / 1000, _progress(progress.encode())
                    )
                )
            except ValueError as error:
                self._foreign.skipped(key, repr(name[:_SHOWN_BYTES]), error)
        return sorted(found, key=lambda each: each.expired)

    async def look(self, *nodes: NodeRef) -> list[float | None]:
        """See ``NodeDirectory.look``."""
        left = await self._batcher.call(scripts.NODE_LOOK(self._keys.leases, self._clock.argument(), *map(str, nodes)))
        return [None if each == b"" else each / 1000 for each in left]

    async def finish_takeover(self, expired: NodeRef, *, by: NodeRef, clean_after: float = 0.0) -> None:
        """See ``NodeDirectory.finish_takeover``."""
        keys = self._keys
        await self._batcher.call(
            scripts.NODE_FINISH(
                *(keys.leases, keys.members, keys.takeovers, keys.inbox(expired), keys.reports, keys.clocks),
                *(keys.lost, keys.backups, keys.saved),
                *(self._clock.argument(), str(expired), str(by)),
                *(_milliseconds(LOST_SECONDS), LOST_NODES, GONE_BACKUPS),
                _milliseconds(clean_after) if clean_after else 0,
            )
        )
        self._write_gate.expired.pop(expired, None)

    async def grant(self, nodes: Sequence[NodeRef], *, lease: float) -> list[NodeRef]:
        """See ``NodeDirectory.grant``."""
        keys = self._keys
        granted = await self._batcher.call(
            scripts.NODE_GRANT(
                *(keys.grid, keys.leases, keys.members, keys.saved, self._clock.argument()),
                *(_milliseconds(lease), self._grid.seal),
                *map(str, nodes),
            )
        )
        if granted == b"stale":
            raise self._grid.stale()
        return [NodeRef.parse(each.decode()) for each in granted]

    async def report(self, node: NodeRef, report: NodeReport) -> None:
        """See ``NodeDirectory.report``."""
        keys = self._keys
        await self._batcher.call(
            scripts.NODE_REPORT(keys.members, keys.reports, str(node), orjson.dumps(dataclasses.asdict(report)))
        )

    async def tell_backup(self, node: NodeRef, backup: Backup | None, *, keep: float) -> bool:
        """See ``NodeDirectory.tell_backup``."""
        keys = self._keys
        told = b""
        if backup is not None:
            told = orjson.dumps(
                {"backup": str(backup.node), "mode": backup.mode, "whole": backup.whole, "of": backup.of}
            )
        kept = await self._batcher.call(
            scripts.NODE_BACKUP(
                *(keys.leases, keys.backups, self._clock.argument()),
                *(str(node), _milliseconds(keep), told, GONE_BACKUPS),
            )
        )
        return bool(kept)

    async def backups(self, *nodes: NodeRef) -> dict[NodeRef, Backup]:
        """See ``NodeDirectory.backups``."""
        backups = self._keys.backups
        told = await self._batcher.call(scripts.NODE_BACKUP_OF(backups, self._clock.argument(), *map(str, nodes)))
        found: dict[NodeRef, Backup] = {}
        for name, stored in zip(told[::2], told[1::2], strict=True):
            try:
                found[NodeRef.parse(name.decode())] = _backup(stored)
            except ValueError as error:
                self._foreign.skipped(backups, repr(name[:_SHOWN_BYTES]), error)
        return found

    async def cluster(self, suggested: str) -> str:
        """See ``NodeDirectory.cluster``."""
        known = await self._batcher.call(scripts.NODE_CLUSTER(self._keys.grid, self._grid.seal, suggested))
        if known == b"stale":
            raise self._grid.stale()
        return str(known.decode())

    async def entries(self) -> list[NodeEntry]:
        """See ``NodeDirectory.entries``."""
        keys = self._keys
        alive, expired, told, known = await self._batcher.call(
            scripts.NODE_LIST(keys.leases, keys.reports, keys.members, self._clock.argument())
        )
        reports = dict(zip(told[::2], told[1::2], strict=True))
        members = dict(zip(known[::2], known[1::2], strict=True))
        return sorted(
            [
                NodeEntry(
                    node, names is alive, self._report(node, reports.get(name)), joined=_term(members.get(name, b""))
                )
                for names in (alive, expired)
                for node in self._nodes(names)
                for name in [str(node).encode()]
            ],
            key=lambda entry: entry.node,
        )

    async def lost(self) -> list[LostNode]:
        """See ``NodeDirectory.lost``."""
        keys = self._keys
        told = await self._batcher.call(
            scripts.NODE_LOST(keys.lost, keys.leases, self._clock.argument(), _milliseconds(LOST_SECONDS))
        )
        found: list[LostNode] = []
        for name, ago, report in zip(told[::3], told[1::3], told[2::3], strict=True):
            try:
                node = NodeRef.parse(name.decode())
            except ValueError as error:
                self._foreign.skipped(keys.lost, repr(name[:_SHOWN_BYTES]), error)
                continue
            found.append(LostNode(node, ago / 1000, self._report(node, report or None)))
        return sorted(found, key=lambda each: each.node)

    async def tell_claimed(self, to: NodeRef, *ownerships: Ownership) -> None:
        """See ``NodeDirectory.tell_claimed``."""
        await self._batcher.call(
            scripts.NODE_TELL(
                *(self._keys.leases, self._keys.inbox(to), self._clock.argument()),
                *(str(to), INBOX_MESSAGES),
                *(f"{each.session} {each.epoch} {each.owner}" for each in ownerships),
            )
        )

    def claimed_elsewhere(self, node: NodeRef) -> AsyncIterator[Ownership]:
        """See ``NodeDirectory.claimed_elsewhere``."""
        return self._tail.inbox(self._keys.inbox(node))

    def _saved_until(self, ago: float | None) -> int | str:
        """Tell when it was so many seconds ago, by the time of the grid in milliseconds, and rather too early."""
        now = self._clock.earliest()
        return "" if ago is None or now is None else max(0, int(now - ago * 1000))

    def _nodes(self, names: Iterable[bytes]) -> tuple[NodeRef, ...]:
        """Read names of nodes with a lease; what is none is left out."""
        nodes: list[NodeRef] = []
        for name in names:
            try:
                nodes.append(NodeRef.parse(name.decode()))
            except ValueError as error:
                self._foreign.skipped(self._keys.leases, repr(name[:_SHOWN_BYTES]), error)
        return tuple(sorted(nodes))

    def _report(self, node: NodeRef, stored: bytes | None) -> NodeReport | None:
        try:
            return None if stored is None else _report(stored)
        except ValueError as error:
            self._foreign.skipped(self._keys.reports, str(node), error)
            return None

    def _tell_of_step(self, step: _Step) -> None:
        self._metrics.add(GRID_CLOCK_STEPS)
        self._log.emit(
            GRID_CLOCK_STEPPED, seconds=round(step.step / 1000, 3), shift_seconds=round(step.shift / 1000, 3)
        )

    async def _has_recorded(self) -> bool:
        return bool(await self._batcher.call(("HGET", self._keys.grid, "shift_by")) == str(self._node).encode())

    async def _see_to_clock(self, said: int, shift: int, asked: float, answered: float) -> None:
        """Follow the clock of Redis; should it have been set, record that in the grid, unless another node was first.

        Raises:
            GridUnavailable: nobody knows whether that was recorded; the next renewal finds the same, or that it was.
        """
        clock, keys = self._clock, self._keys
        if self._unanswered is not None:
            unanswered = self._unanswered
            # Of the millisecond, but another node may have found the same.
            if shift == unanswered.shift and await self._has_recorded():
                self._tell_of_step(unanswered)
            self._unanswered = None
        step = clock.read(said, shift, asked=asked, answered=answered)
        if not step:
            return
        even = clock.went_on_evenly(said, asked=asked, answered=answered)
        # One that was emptied is only told again what it knew.
        is_news = abs(shift + step - clock.shift) > TOLERANCE_MS
        try:
            in_force, recorded = await self._batcher.call(
                scripts.CLOCK_SET(
                    *(keys.grid, keys.clocks, str(self._node), shift, shift + step),
                    *(clock.last if even else clock.last_by(shift), said - step, said, TOLERANCE_MS),
                    *(clock.age(answered), int(even)),
                )
            )
        except GridUnavailable:
            self._unanswered = _Step(step, shift + step) if is_news else None
            raise
        if recorded == _RECORDED and is_news:
            self._tell_of_step(_Step(step, in_force))
        if recorded == _CONTRADICTED:
            clock.follow(said, in_force, asked=asked, answered=answered, anew=True)
        else:
            clock.read(said, in_force, asked=asked, answered=answered)


def _report(stored: bytes) -> NodeReport | None:
    """Read a report; nodes of other versions may tell more, or too little to make one.

    Raises:
        ValueError: no node can have written it.
    """
    told: Any = orjson.loads(stored)
    if not isinstance(told, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - what is read is wrong, not who reads it
    for name, kinds in _REPORTED.items():
        if name in told and (not isinstance(told[name], kinds) or (type(told[name]) is bool and kinds is not bool)):
            raise ValueError(f"{name!r} is of another type")
    for name in ("reasons", "suspects", "urls"):
        if not all(isinstance(each, str) for each in told.get(name, ())):
            raise ValueError(f"{name!r} are no texts")
    if not all(type(each) is int for each in told.get("link_protocols", ())):
        raise ValueError("'link_protocols' are no numbers")
    if not all(type(each) is int for each in told.get("largest", {}).values()):
        raise ValueError("'largest' are no numbers")
    try:
        report = NodeReport(**{name: told[name] for name in _REPORTED if name in told})
    except TypeError:
        return None
    lists: dict[str, Any] = {name: tuple(getattr(report, name)) for name, kinds in _REPORTED.items() if kinds is list}
    lists["zone_links"] = tuple(map(_link, told.get("zone_links", ())))
    return dataclasses.replace(report, **lists)


_LINK_FIELDS: Final = {each.name: type(each.default) for each in dataclasses.fields(ZoneLinkReport)} | {
    "name": str,
    "remote": str,
}


def _link(told: Any) -> ZoneLinkReport:
    """Read what a node has told of a link; what a later release tells besides is ignored.

    Raises:
        ValueError: it is no such thing.
    """
    if not isinstance(told, dict):
        raise ValueError("a link is no JSON object")  # noqa: TRY004 - what is read is wrong, not who reads it
    known = {name: told[name] for name in _LINK_FIELDS if name in told}
    for name, value in known.items():
        kind = _LINK_FIELDS[name]
        if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
            raise ValueError(f"{name!r} of a link is of another type")  # noqa: TRY004 - as above
    try:
        return ZoneLinkReport(**known)
    except TypeError:
        raise ValueError("a link has no name") from None


def _progress(stored: bytes) -> TakeoverProgress:
    """Read how far a takeover has come; what another release has written in its own way is begun anew."""
    match stored.decode("utf-8", "replace").split():
        case [stage, step, sessions, generation] if step.isdigit() and sessions.isdigit() and generation.isdigit():
            return TakeoverProgress(
                stage=stage, step=int(step), sessions=int(sessions), generation=GridGeneration(int(generation))
            )
        case _:
            return TakeoverProgress()


def _backup(stored: bytes) -> Backup:
    """Read what a node has told of its backup.

    Raises:
        ValueError: it is nothing that this release understands.
    """
    told: Any = orjson.loads(stored)
    if not isinstance(told, dict) or not isinstance(told.get("backup"), str):
        raise ValueError("it names no backup")  # noqa: TRY004 - what is read is wrong, not who reads it
    whole, of = told.get("whole"), told.get("of")
    if type(whole) is not int or type(of) is not int:
        raise ValueError("'whole' and 'of' are no numbers")
    return Backup(node=NodeRef.parse(told["backup"]), mode=MirrorMode(str(told.get("mode"))), whole=whole, of=of)


def _saved(with_lease: Collection[bytes], told: Sequence[bytes], outage_over: bytes) -> SavedUntil:
    """Read what nodes with a lease have told that they have saved; what no node can have written is left out."""
    nodes: dict[NodeRef, float] = {}
    for name, until in zip(told[::2], told[1::2], strict=True):
        with suppress(ValueError):
            if name in with_lease:
                nodes[NodeRef.parse(name.decode())] = int(until) / 1000
    return SavedUntil(nodes, int(outage_over) / 1000 if outage_over.isdigit() else float("-inf"))


def _term(member: bytes) -> int:
    """Read the term of a lease; 0 of what no node has written."""
    _, _, term = member.partition(b" ")
    return int(term) if term.isdigit() else 0


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
