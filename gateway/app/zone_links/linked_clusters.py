"""All links of a node with other clusters: those that it carries, and those that others have opened to it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from gateway.app.context import Context
from gateway.app.journal.zone_events import ZoneLinkConnected, ZoneLinkLost
from gateway.app.security.authorisation import Authorisation
from gateway.app.zone_links.carried_link import CarriedLink
from gateway.app.zone_links.carriers import Carriers
from gateway.app.zone_links.greeting import GREETING_SECONDS, Judged, NotLinked, Target, expect, greet, meet
from gateway.app.zone_links.judging import Judge
from gateway.app.zone_links.knowledge import Knowledge
from gateway.app.zone_links.leaving import Leaving
from gateway.app.zone_links.receiver import Receiver
from gateway.app.zone_links.sender import LinkProgress, Sender
from gateway.app.zone_links.streams import OutgoingStreams
from gateway.app.zone_links.views import ZoneLinkView
from gateway.app.zones.knowledge import ZoneKnowledge
from gateway.catalogue import log_events
from gateway.catalogue import zone_link_log_events as log
from gateway.catalogue import zone_link_metrics as catalogue
from gateway.core.zones.messages import encode
from gateway.core.zones.protocol import MOST_HEARD, Members, Purpose, Refuse, Welcome, ZoneRefusal
from gateway.core.zones.records import MOST_MEMBERS, Member, ZoneUid
from gateway.core.zones.routes import ClusterId
from gateway.ports import GridUnavailable, LinkName, TooManyRecords, ZoneLinkReport
from gateway.ports.zone_administration import Introduction, NotIntroduced
from gateway.ports.zone_links import NoZoneLink, ZoneConnection, ZoneLinkBroken, ZoneLinks

MOST_RECEIVERS: Final = 512
"""Links that others have opened to one node: each costs up to its inbox of memory."""

LOGGED_EVERY: Final = 60.0
"""Seconds in which one address is told of once for a reason: strangers must not fill the log."""

MOST_LOGGED: Final = 1_000
"""Addresses and reasons that are remembered for that."""

SHOWN_CHARACTERS: Final = 8
"""Of the id of a cluster that has no name, for people."""


class LinkedClusters:
    """Keeps links.

    Args:
        context: of the node.
        links: its port for them; not started yet.
        authorisation: says what the principals of links may do.
        zones: what this node knows of zones.

    Attributes:
        knowledge: what is known of zones.
        carriers: which links this node carries.
    """

    def __init__(
        self,
        context: Context,
        links: ZoneLinks,
        authorisation: Authorisation,
        zones: ZoneKnowledge,
    ) -> None:
        self.knowledge = Knowledge()
        self.links = links
        self._context = context
        self._authorisation = authorisation
        self._zones = zones
        self._shares = shares = context.parameters.zones.shares
        self._limits = context.parameters.zones.limits
        self._streams = OutgoingStreams(context)
        self._changed = asyncio.Event()
        self.carriers = Carriers(context, self.knowledge, shares=shares, changed=self._changed.set)
        self._carried: dict[LinkName, CarriedLink] = {}
        self._receivers: dict[LinkName, Receiver] = {}
        self._progress: dict[LinkName, LinkProgress] = {}
        self._logged: OrderedDict[tuple[str, ZoneRefusal], float] = OrderedDict()
        self._closing = False
        self._watch()

    # --- Life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to work; the port is started by whoever made it, with ``serve``."""
        background = self._context.background
        self._zones.on_change(self._learn)
        self._learn()
        background.forever(self.carriers.run, "zone-carriers")
        background.forever(self._streams.run, "zone-streams")
        background.forever(self._streams.follow, "zone-streams-follow")
        background.forever(self._keep, "zone-links")

    async def close(self) -> None:
        """Hang up politely, so that others dial other nodes, and give the leases back."""
        self._closing = True
        for link in tuple(self._carried.values()):
            await link.close()
        self._carried.clear()
        for receiver in tuple(self._receivers.values()):
            receiver.end(NotLinked(ZoneRefusal.STOPPED, "the node stops"))
        await asyncio.sleep(0)
        await self.links.close()
        await self.carriers.release()

    def _learn(self) -> None:
        """What this node knows of zones has changed."""
        zones, knowledge = self._zones, self.knowledge
        # Whoever has lost writes is in another generation then.
        knowledge.losses = self._context.grid.generation
        if zones.cluster:
            knowledge.learn_identity(zones.cluster, zones.name or zones.cluster[:SHOWN_CHARACTERS])
        if zones.table is not knowledge.table:
            knowledge.learn_table(zones.table)
        knowledge.learn_interest(zones.interest)

    async def _keep(self) -> None:
        """Have a link for each lease of one."""
        while not self._closing:
            self._changed.clear()
            carried = dict(self.carriers.carried)
            for name, link in tuple(self._carried.items()):
                wanted = carried.get(name)
                if wanted is None or wanted[0] != link.target or wanted[2].term != link.term:
                    del self._carried[name]
                    await link.close()
            for name, (target, share, carrier) in carried.items():
                if name not in self._carried:
                    self._carried[name] = CarriedLink(
                        self._context,
                        name,
                        target,
                        self._progress_of(name, carrier.term),
                        share=share,
                        term=carrier.term,
                        first=_first_url(self.knowledge.cluster, name),
                        connect=self._connect,
                        stale=self.carriers.drop,
                    )
            await self._changed.wait()

    def _progress_of(self, name: LinkName, term: int) -> LinkProgress:
        """Return what is known of a link; nothing, if somebody else has had it since."""
        known = self._progress.get(name)
        if known is None or known.term != term:
            known = LinkProgress(name, term, depth=self._context.parameters.topic_depth, most=MOST_HEARD)
        for gone in self._progress.keys() - self.carriers.carried.keys():
            del self._progress[gone]
        self._progress[name] = known
        return known

    # --- Links that this node carries ---------------------------------------------------------------------------------

    async def _connect(self, link: CarriedLink, url: str) -> None:
        """Have one connection of a link until it breaks."""
        connection = await self.links.dial(url, within=GREETING_SECONDS)
        try:
            shares = 1 if link.target.purpose is Purpose.MEET else self._shares
            welcome = await self._greeted(connection, link.target, link.share, shares, link.term)
            if link.target.purpose is Purpose.MEET:
                members = await _told(connection)
                await self._merge(members)
                return
            sender = Sender(
                self._context,
                self.knowledge,
                self._streams,
                connection,
                link.target,
                term=link.term,
                share=link.share,
                shares=shares,
                progress=link.progress,
                leaving=Leaving(
                    self._context,
                    self._authorisation,
                    self.knowledge,
                    link.target,
                    link.progress.heard,
                    cluster=welcome.cluster,
                    place=welcome.place,
                ),
                limits=self._limits,
            )
            link.is_up(sender, welcome.cluster)
            try:
                await sender.run()
            except NotLinked as error:
                await sender.talk.refuse(error)
                raise
        finally:
            connection.abort()

    async def _greeted(self, connection: ZoneConnection, target: Target, share: int, shares: int, term: int) -> Welcome:
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                return await greet(connection, target, self.knowledge, share=share, shares=shares, term=term)
        except TimeoutError:
            raise NotLinked(ZoneRefusal.BUSY, f"{target.label} does not answer") from None

    async def introduce(self, urls: Sequence[str], *, reference: str, key: str) -> Introduction:
        """See ``ZoneIntroducer``."""
        target = Target(
            name="introduction",
            purpose=Purpose.MEET,
            reference=reference,
            key=key,
            urls=tuple(urls),
            label="the member",
        )
        reasons = []
        for url in urls:
            try:
                connection = await self.links.dial(url, within=GREETING_SECONDS)
            except NoZoneLink as error:
                reasons.append(str(error))
                continue
            try:
                welcome = await self._greeted(connection, target, 0, 1, 0)
                return Introduction(ZoneUid(welcome.zone), welcome.zone_name, welcome.cluster)
            except (NotLinked, ZoneLinkBroken) as error:
                reasons.append(f"{url}: {error}")
            finally:
                connection.abort()
        raise NotIntroduced("; ".join(reasons) or "no URL was given of a member of the zone")

    # --- Links that others have opened --------------------------------------------------------------------------------

    async def serve(self, connection: ZoneConnection) -> None:
        """Serve a connection that was accepted, until it is over."""
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                judged = await meet(connection, self.knowledge)
            receiver = self._receiver(connection, judged)
        except TimeoutError:
            self._refused(connection, NotLinked(ZoneRefusal.BUSY, "nothing was said in time"))
        except ZoneLinkBroken:
            pass
        except NotLinked as error:
            self._refused(connection, error)
            await connection.close(b"" if error.told else encode(Refuse(error.why, str(error))))
        else:
            if judged.member is not None:
                await self._merge([judged.member])
            if judged.source.is_meeting:
                await self._serve(receiver)
            else:
                await self._serve_link(receiver)

    async def _serve_link(self, receiver: Receiver) -> None:
        link = receiver.source.link
        self._receivers[link] = receiver
        self._context.announce(ZoneLinkConnected(receiver.counted))
        try:
            why, refused = await self._serve(receiver)
        finally:
            if self._receivers.get(link) is receiver:
                del self._receivers[link]
        self._context.announce(ZoneLinkLost(receiver.counted, receiver.since, why, refused))

    async def _serve(self, receiver: Receiver) -> tuple[str, bool]:
        """Serve a link until it is over; returns why it is, and whether one of both does not want the other."""
        try:
            await receiver.run()
        except (ZoneLinkBroken, GridUnavailable) as error:
            return str(error), False
        except NotLinked as error:
            if not error.told and not receiver.source.is_meeting:
                self._context.metrics.add(catalogue.ZONE_LINKS_REFUSED, label=error.why.value)
            await receiver.talk.refuse(error)
            return str(error), True
        return "it has ended", False

    def _receiver(self, connection: ZoneConnection, judged: Judged) -> Receiver:
        source = judged.source
        before = self._receivers.get(source.link)
        if before is not None and before.source.term > source.term:
            raise NotLinked(ZoneRefusal.STALE, f"another node of {source.cluster} sends by now")
        if self._closing:
            raise NotLinked(ZoneRefusal.STOPPED, "the node stops")
        if before is None and len(self._receivers) >= MOST_RECEIVERS:
            raise NotLinked(ZoneRefusal.BUSY, f"there are {MOST_RECEIVERS} links already")
        if before is not None:
            before.end(NotLinked(ZoneRefusal.STALE, "another connection has taken over"))
        judge = Judge(self._context, self._authorisation, self.knowledge, source)
        return Receiver(self._context, self.knowledge, connection, judge, self._limits)

    async def _merge(self, members: Sequence[Member]) -> None:
        zone = self.knowledge.table.zone
        own = [each for each in members if zone is not None and each.zone == zone.uid]
        try:
            await self._context.grid.zones.merge(own, own=self.knowledge.cluster)
        except GridUnavailable:
            return  # they are told again when the next link comes up
        except TooManyRecords as error:
            self._context.log.emit(log_events.BACKGROUND_TASK_FAILED, task="zone-members", error=repr(error))

    def _refused(self, connection: ZoneConnection, error: NotLinked) -> None:
        if error.told:
            return
        self._context.metrics.add(catalogue.ZONE_LINKS_REFUSED, label=error.why.value)
        key, now = (connection.address, error.why), self._context.clock.monotonic()
        if now - self._logged.get(key, -LOGGED_EVERY) < LOGGED_EVERY:
            return
        self._logged[key] = now
        self._logged.move_to_end(key)
        while len(self._logged) > MOST_LOGGED:
            self._logged.popitem(last=False)
        self._context.log.emit(
            log.ZONE_LINK_REFUSED, address=connection.address, reason=error.why.value, why=str(error)
        )

    # --- For people ---------------------------------------------------------------------------------------------------

    def place(self) -> tuple[str, str]:
        """Tell where this node takes links, and the fingerprint of its certificate."""
        return self.links.url, self.links.fingerprint

    def reports(self) -> list[ZoneLinkReport]:
        """Describe all links of this node, for the other nodes."""
        return [each.report() for each in self.views()]

    def views(self) -> list[ZoneLinkView]:
        """Describe all links of this node."""
        found = [each.view() for _, each in sorted(self._carried.items()) if each.target.purpose is not Purpose.MEET]
        return found + [each.view() for _, each in sorted(self._receivers.items())]

    def _watch(self) -> None:
        watch = self._context.metrics.watch
        watch(
            catalogue.ZONE_LINKS, lambda: sum(each.sender is not None for each in self._carried.values()), label="out"
        )
        watch(catalogue.ZONE_LINKS, lambda: len(self._receivers), label="in")
        watch(catalogue.ZONE_LINKS_WANTED, lambda: len(self.carriers.carried))
        watch(catalogue.ZONE_WAITING, lambda: sum(each.unacknowledged for each in self._senders()))
        watch(catalogue.ZONE_BEHIND, lambda: max((each.behind for each in self._senders()), default=0))
        watch(catalogue.ZONE_CLOCK, self._clock_difference)
        watch(catalogue.ZONE_INTEREST, lambda: len(self.knowledge.interest), label="own")
        watch(
            catalogue.ZONE_INTEREST,
            lambda: sum(len(each.progress.heard) for each in self._carried.values()),
            label="others",
        )

    def _senders(self) -> list[Sender]:
        return [each.sender for each in self._carried.values() if each.sender is not None]

    def _clock_difference(self) -> float:
        talks = [each.talk for each in self._senders()] + [each.talk for each in self._receivers.values()]
        return max((abs(each.clock_difference) for each in talks), default=0.0)


def _first_url(cluster: ClusterId, link: LinkName) -> int:
    """Tell which URL of the other end a link tries first: not the same one for all clusters that have links with it."""
    return int.from_bytes(blake2b(f"{cluster} {link}".encode(), digest_size=4).digest())


async def _told(connection: ZoneConnection) -> list[Member]:
    """Read what a member tells of its zone to somebody who only meets it, until it hangs up."""
    members: list[Member] = []
    try:
        async with asyncio.timeout(GREETING_SECONDS):
            while True:
                message = await expect(connection)
                if isinstance(message, Members):
                    members += message.members
                if len(members) > MOST_MEMBERS:
                    raise NotLinked(ZoneRefusal.LIMIT, f"it tells of more than {MOST_MEMBERS:,} members")
    except NotLinked as error:
        if error.why is not ZoneRefusal.STOPPED:
            raise
    except (ZoneLinkBroken, TimeoutError):
        if not members:
            raise NotLinked(ZoneRefusal.BUSY, "it told of no member") from None
    return members
