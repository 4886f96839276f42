"""Zones and joins, as an administrator sees and changes them; implements ``ZoneAdministration``."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Final

from gateway.app.context import Context
from gateway.app.zones.knowledge import ZoneKnowledge
from gateway.app.zones.own_member import member_of
from gateway.core.zones.records import (
    InvalidRecord,
    Join,
    JoinDirection,
    Member,
    Zone,
    ZoneUid,
    check_fingerprints,
    check_hops,
    check_link_urls,
    check_name,
    check_selectors,
    zone_key,
)
from gateway.core.zones.routes import MOST_HOPS
from gateway.ports import NodeEntry, OtherZone, TooManyRecords, ZoneLinkReport, ZoneTable
from gateway.ports.administration import BadParameter, Conflict, NotThere
from gateway.ports.zone_administration import (
    ClusterView,
    JoinTerms,
    JoinView,
    MemberView,
    NotIntroduced,
    ZoneIntroducer,
    ZoneLinkView,
    ZoneView,
)

UID_BYTES: Final = 12
"""Random bytes of the uid of a zone: no two ever share one, wherever they are made."""


class ClusterZones:
    """Zones and joins, as the grid holds them.

    Args:
        context: of the node.
        knowledge: what this node knows of zones.
        introducer: asks members of other zones; None if the node has no links to other clusters.

    Attributes:
        introducer: as given.
    """

    def __init__(self, context: Context, knowledge: ZoneKnowledge, introducer: ZoneIntroducer | None) -> None:
        self._grid = context.grid
        self._clock = context.clock
        self._knowledge = knowledge
        self.introducer = introducer

    # --- Zones --------------------------------------------------------------------------------------------------------

    async def this_cluster(self) -> ClusterView:
        """See ``ZoneAdministration.this_cluster``."""
        member = await self._own_member(ZoneUid("none"))
        return ClusterView(member.cluster, member.name, member.urls, member.fingerprints)

    async def zones(self) -> Sequence[ZoneView]:
        """See ``ZoneAdministration.zones``."""
        table = await self._grid.zones.read()
        return [_zone(each, table) for each in sorted(table.zones.values(), key=lambda each: (each.name, each.uid))]

    async def create(self, name: str, secret: str) -> ZoneView:
        """See ``ZoneAdministration.create``."""
        zone = self._new_zone(name, _key(secret))
        try:
            await self._grid.zones.put(zone)
        except TooManyRecords as error:
            raise Conflict(str(error)) from None
        await self._heard(lambda: zone.uid in self._knowledge.table.zones)
        return _zone(zone, self._knowledge.table)

    async def join(self, zone: str, *, urls: Sequence[str], secret: str | None) -> ZoneView:
        """See ``ZoneAdministration.join``."""
        table = await self._grid.zones.read()
        try:
            seeds = check_link_urls("urls", urls)
        except InvalidRecord as invalid:
            raise BadParameter(invalid.field, str(invalid)) from None
        wanted = await self._wanted(table, zone, seeds, secret)
        try:
            await self._grid.zones.enter(wanted, await self._own_member(wanted.uid), made=self._clock.wall())
        except (OtherZone, TooManyRecords) as error:
            raise Conflict(str(error)) from None
        await self._heard(lambda: self._knowledge.table.zone is not None)
        table = await self._grid.zones.read()
        return _zone(table.zones.get(wanted.uid, wanted), table)

    async def leave(self) -> None:
        """See ``ZoneAdministration.leave``."""
        if await self._grid.zones.leave(self._knowledge.cluster, made=self._clock.wall()) is None:
            raise NotThere("zone", _NO_ZONE)
        await self._heard(lambda: self._knowledge.table.zone is None)

    async def current(self) -> ZoneView:
        """See ``ZoneAdministration.current``."""
        table = await self._grid.zones.read()
        if table.zone is None:
            raise NotThere("zone", _NO_ZONE)
        return _zone(table.zone, table)

    async def members(self) -> Sequence[MemberView]:
        """See ``ZoneAdministration.members``."""
        table = await self._grid.zones.read()
        if table.zone is None:
            raise NotThere("zone", _NO_ZONE)
        entries = await self._grid.nodes.entries()
        return [
            MemberView(
                each.cluster,
                each.name,
                each.cluster == self._knowledge.cluster,
                each.urls,
                each.fingerprints,
                each.revision,
                _links(entries, each.cluster),
            )
            for each in table.members_of(table.zone.uid)
        ]

    async def _wanted(self, table: ZoneTable, reference: str, seeds: tuple[str, ...], secret: str | None) -> Zone:
        """Find out which zone is meant, and make what is to be known of it."""
        named = [each for each in table.zones.values() if each.name == reference]
        known = table.zones.get(ZoneUid(reference)) or (named[0] if len(named) == 1 else None)
        if seeds:
            key = _key(secret) if secret is not None or known is None else known.key
            return await self._introduced(reference, seeds, key)
        if known is None and named:
            uids = ", ".join(sorted(each.uid for each in named))
            raise Conflict(f"{len(named)} zones are called {reference!r}; name one by its uid: {uids}")
        if known is None:
            return self._new_zone(reference, _key(secret))
        key = known.key if secret is None else _key(secret)
        return Zone(uid=known.uid, name=known.name, key=key, made=self._clock.wall(), seeds=known.seeds)

    async def _introduced(self, reference: str, seeds: tuple[str, ...], key: str) -> Zone:
        if self.introducer is None:
            raise Conflict(
                "this node takes no links of other clusters, so that it can ask none for the zone; set zone_listen"
            )
        try:
            told = await self.introducer.introduce(seeds, reference=reference, key=key)
        except NotIntroduced as error:
            raise Conflict(str(error)) from None
        return Zone(uid=told.uid, name=told.name, key=key, made=self._clock.wall(), seeds=seeds)

    def _new_zone(self, name: str, key: str) -> Zone:
        try:
            checked = check_name("zone", name)
        except InvalidRecord as invalid:
            raise BadParameter("name", str(invalid)) from None
        return Zone(uid=ZoneUid(secrets.token_urlsafe(UID_BYTES)), name=checked, key=key, made=self._clock.wall())

    async def _own_member(self, zone: ZoneUid) -> Member:
        await self._knowledge.loaded()
        member = Member(zone=zone, cluster=self._knowledge.cluster)
        return member_of(member, self._knowledge.name, await self._grid.nodes.entries())

    # --- Joins --------------------------------------------------------------------------------------------------------

    async def joins(self) -> Sequence[JoinView]:
        """See ``ZoneAdministration.joins``."""
        table = await self._grid.zones.read()
        entries = await self._grid.nodes.entries()
        return [_join(each, entries) for _, each in sorted(table.joins.items())]

    async def find_join(self, name: str) -> JoinView:
        """See ``ZoneAdministration.find_join``."""
        table = await self._grid.zones.read()
        if name not in table.joins:
            raise NotThere("join", _NO_JOIN)
        return _join(table.joins[name], await self._grid.nodes.entries())

    async def put_join(self, name: str, terms: JoinTerms) -> JoinView:
        """See ``ZoneAdministration.put_join``."""
        table = await self._grid.zones.read()
        known = table.joins.get(name)
        try:
            join = Join(
                name=check_name("name", name),
                direction=JoinDirection(terms.direction),
                selectors=check_selectors("selectors", terms.selectors),
                urls=check_link_urls("urls", terms.urls),
                fingerprints=check_fingerprints("fingerprints", terms.fingerprints),
                key=known.key if known is not None and terms.secret is None else _key(terms.secret),
                made=max(self._clock.wall(), 0.0 if known is None else known.made + _LATER),
                most_hops=MOST_HOPS if terms.most_hops is None else check_hops("most_hops", terms.most_hops),
            )
        except InvalidRecord as invalid:
            raise BadParameter(invalid.field, str(invalid)) from None
        if not join.fingerprints:
            raise BadParameter("fingerprints", "are missing: nobody but who has one of these certificates is trusted")
        if bool(join.urls) is not (join.direction is JoinDirection.OUT):
            raise BadParameter("urls", "belong to a join that goes out, and it needs at least one")
        try:
            await self._grid.zones.put(join)
        except TooManyRecords as error:
            raise Conflict(str(error)) from None
        await self._heard(lambda: self._knowledge.table.joins.get(name) == join)
        return _join(join, await self._grid.nodes.entries())

    async def remove_join(self, name: str) -> None:
        """See ``ZoneAdministration.remove_join``."""
        if not await self._grid.zones.remove_join(name):
            raise NotThere("join", _NO_JOIN)
        await self._heard(lambda: name not in self._knowledge.table.joins)

    async def _heard(self, known: Callable[[], bool]) -> None:
        await self._knowledge.until(known)


_NO_ZONE: Final = "this cluster is in no zone"
_NO_JOIN: Final = "this cluster has no join of that name"

_LATER: Final = 0.001
"""Seconds by which a change of a join is later than what it changes, whatever the clocks of two nodes say."""


def _key(secret: str | None) -> str:
    if secret is None:
        raise BadParameter("secret", "is missing, and none is known here")
    try:
        return zone_key(secret.encode())
    except InvalidRecord as invalid:
        raise BadParameter("secret", str(invalid)) from None


def _zone(zone: Zone, table: ZoneTable) -> ZoneView:
    current = table.zone
    members = len(table.members_of(zone.uid))
    return ZoneView(
        zone.uid, zone.name, current is not None and current.uid == zone.uid, members > 0, members, zone.made
    )


def _join(join: Join, entries: Sequence[NodeEntry]) -> JoinView:
    return JoinView(
        join.name,
        join.direction.value,
        tuple(each.text for each in join.selectors),
        join.urls,
        join.fingerprints,
        join.most_hops,
        join.made,
        _links(entries, join.name),
    )


def _links(entries: Sequence[NodeEntry], remote: str) -> tuple[ZoneLinkView, ...]:
    """List the links with another cluster, or of a join, as the living nodes tell of them."""
    return tuple(
        _link(entry.node.node, link)
        for entry in entries
        if entry.alive and entry.report is not None
        for link in entry.report.zone_links
        if link.remote == remote
    )


def _link(node: str, link: ZoneLinkReport) -> ZoneLinkView:
    return ZoneLinkView(
        node,
        link.name,
        link.direction,
        link.state,
        link.detail,
        link.since,
        link.events,
        link.bytes,
        link.behind,
        link.unacknowledged,
        link.duplicates,
        link.selectors,
    )
