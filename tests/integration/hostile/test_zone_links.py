"""Strangers, old members and liars on zone links: each is refused, or costs a bounded share (P18, P20)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import count

import pytest

from gateway.adapters.memory import MemoryZoneLinks
from gateway.catalogue import zone_link_metrics as catalogue
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.topics import topic_partition
from gateway.core.types import TopicPath, Version
from gateway.core.zones.compaction import MOST_SELECTORS
from gateway.core.zones.interest import InterestChange, InterestDigest
from gateway.core.zones.messages import encode
from gateway.core.zones.proofs import Meeting, Role, key_name, proof
from gateway.core.zones.protocol import (
    Challenge,
    Events,
    EventsAck,
    InterestAll,
    InterestAsk,
    Members,
    Purpose,
    ValuesAsk,
    Welcome,
    ZoneMessage,
)
from gateway.core.zones.records import Member, ZoneUid, zone_key
from gateway.core.zones.routes import ClusterId, Place
from gateway.core.zones.stamps import Origin, Stamp
from gateway.ports import LinkName, TopicValue
from gateway.ports.zone_links import ZoneConnection, ZoneLinkBroken
from tests.support.false_zone_receiver import false_end_of_a_join, false_receiver
from tests.support.raw_zone_peer import event, raw_zone_peer, stopped
from tests.support.virtual_zones import VirtualZones, ZoneCluster, run_zones

pytestmark = [pytest.mark.promise("P18"), pytest.mark.promise("P20")]

WRONG = zone_key(b"a guess that is long enough")


def refusals(cluster: ZoneCluster, reason: str) -> float:
    return cluster.node.metrics.count(catalogue.ZONE_LINKS_REFUSED, label=reason)


# --- Who may be there -------------------------------------------------------------------------------------------------


def test_a_stranger_without_the_secret_is_told_nothing() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        stranger = await raw_zone_peer(world, a, key=WRONG)
        await stranger.hello()
        assert await stranger.refused() == "proof"
        elsewhere = await raw_zone_peer(world, a, zone="another")
        await elsewhere.hello()
        assert await elsewhere.refused() == "zone"
        join = await raw_zone_peer(world, a, zone=key_name(WRONG))
        await join.hello(purpose=Purpose.JOIN)
        assert await join.refused() == "zone"
        assert refusals(a, "proof") == 1
        assert refusals(a, "zone") == 2
        assert a.is_linked(b)

    run_zones(scene)


def test_a_stolen_certificate_without_the_secret_is_of_no_use() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        thief = await raw_zone_peer(world, a, fingerprint=b.fingerprints[0], key=WRONG, cluster=b.id)
        await thief.hello()
        assert await thief.refused() == "proof"

    run_zones(scene)


def test_the_secret_without_the_certificate_does_not_make_one_a_member_that_is_known() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        for revision in (1, 1_000):
            liar = await raw_zone_peer(world, a, cluster=b.id)
            record = replace(b.member(ZoneUid("z")), fingerprints=("ab" * 32,), revision=revision)
            await liar.hello(member=record)
            assert await liar.refused() == "certificate"
        await world.quiet()
        assert a.links.knowledge.others[0].fingerprints == b.fingerprints

    run_zones(scene)


def test_an_old_member_is_refused_though_it_has_certificate_and_secret() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        old = b.member(ZoneUid("z"))
        identity = b.id
        await b.node.grid.zones.leave(b.id, made=world.now())
        await world.until(lambda: a.link_to(b) is None)
        ghost = await raw_zone_peer(world, a, fingerprint=b.fingerprints[0], cluster=identity)
        await ghost.hello(member=old)
        assert await ghost.refused() == "left"

    run_zones(scene)


def test_a_hello_that_was_overheard_is_of_no_use_on_another_connection() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        honest = await raw_zone_peer(world, a)
        await honest.welcomed()
        replay = await raw_zone_peer(world, a)
        await replay.heard(Challenge)
        await replay.connection.send(honest.hello_bytes)
        assert await replay.refused() == "proof"

    run_zones(scene)


def test_somebody_in_the_middle_who_passes_everything_on_is_refused() -> None:
    """Its certificates are vouched for, too; but proofs are bound to those that each end has seen."""

    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        middle = MemoryZoneLinks(world.network, "middle")
        relayed = 0

        async def pump(one: ZoneConnection, other: ZoneConnection) -> None:
            nonlocal relayed
            while True:
                await other.send(await one.receive())
                relayed += 1

        async def relay(connection: ZoneConnection) -> None:
            onward = await middle.dial(a.urls[0], within=5.0)
            connection.trust()
            pumps = [asyncio.create_task(pump(connection, onward)), asyncio.create_task(pump(onward, connection))]
            await asyncio.wait(pumps)

        await middle.start(relay)
        await b.enter("z", seeds=(middle.url,))
        await a.enter("z", seeds=())
        await world.quiet(20.0)
        assert relayed >= 2
        assert refusals(a, "proof") >= 1
        assert b.links.knowledge.others == []
        assert a.links.knowledge.others == []

    run_zones(scene)


def test_a_false_receiver_gets_no_event_and_learns_no_proof_that_is_of_use() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        # Whoever took over the address of b, without its certificate.
        assert b.node.zone_links is not None
        await b.node.zone_links.close()
        heard: list[object] = []

        async def serve(connection: ZoneConnection) -> None:
            await connection.send(encode(Challenge((1,), "n")))
            with pytest.raises(ZoneLinkBroken):
                heard.append(await connection.receive())

        false = MemoryZoneLinks(world.network, "b-n1", fingerprint="cd" * 32)
        await false.start(serve)
        await a.publish("news/1", "secret")
        await world.quiet(20.0)
        view = a.link_to(b)
        assert not view.up
        assert "certificate" in view.detail
        assert heard == []

    run_zones(scene)


def test_a_false_receiver_of_a_join_that_is_not_pinned_has_to_prove_the_secret() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await a.join("to-b", b, "**", fingerprints=(), urls=("wss://false:1",))

        async def serve(connection: ZoneConnection) -> None:
            await connection.send(encode(Challenge((1,), "n")))
            await connection.receive()
            meeting = Meeting("", "", "", "", "n", connection.fingerprint, connection.own_fingerprint)
            made_up = Welcome(
                cluster=b.id,
                name="B",
                place=Place(b.id),
                zone="",
                zone_name="",
                proof=proof(WRONG, Role.LISTENS, meeting),
            )
            await connection.send(encode(made_up))
            await connection.receive()

        false = MemoryZoneLinks(world.network, "false")
        await false.start(serve)
        await a.publish("news/1", "secret")
        await world.quiet(20.0)
        assert "does not know the secret" in a.link_to("to-b").detail
        assert ("a-n1", "false") in world.network.bytes

    run_zones(scene)


def test_who_says_nothing_or_nonsense_is_hung_up() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        silent = await raw_zone_peer(world, a)
        await silent.heard(Challenge)
        nonsense = await raw_zone_peer(world, a)
        await nonsense.heard(Challenge)
        await nonsense.connection.send(b"\x63what")
        assert await nonsense.refused() == "protocol"
        early = await raw_zone_peer(world, a)
        await early.heard(Challenge)
        await early.say(Events((event("news/1"),)))
        assert await early.refused() == "protocol"
        with pytest.raises(AssertionError, match="hung up"):
            await silent.hear()
        assert "news/1" not in a.values

    run_zones(scene)


# --- What members may do ----------------------------------------------------------------------------------------------


def test_events_that_may_not_come_are_left_out_and_counted() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        liar = await raw_zone_peer(world, a)
        await liar.welcomed()
        far = int(world.now() * 1000) + 400 * 24 * 3600 * 1000
        now = Stamp(int(world.now() * 1000), ClusterId("liar"))
        await liar.say(
            Events(
                (
                    event("$gateway/nodes/x", stamp=now),
                    event("a/1", stamp=now, path=(Place("z"),)),
                    event("a/2", stamp=now, origin=Origin(a.id, Version(5))),
                    event("a/3", stamp=Stamp(far, ClusterId("liar"))),
                    event("a/4", b"{", stamp=now),
                    event("a/5", b'"' + b"x" * 5_000_000 + b'"', stamp=now),
                    event("good/1", stamp=now),
                )
            )
        )
        assert (await liar.heard(EventsAck)).messages == 1
        await world.quiet()
        assert a.values == {"good/1": "lie"}
        assert [stopped(a, reason) for reason in ("system", "loop", "stamp", "invalid")] == [1, 2, 1, 2]

    run_zones(scene)


def test_what_was_sent_before_is_taken_once_however_often_it_is_replayed() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        await a.keep_history("log/**")
        liar = await raw_zone_peer(world, a)
        await liar.welcomed()
        now = Stamp(int(world.now() * 1000), ClusterId("liar"))
        message = Events((event("log/1", stamp=now), event("value/1", stamp=now)))
        for _ in range(50):
            await liar.say(message)
        await world.until(lambda: a.got("log/1") == ["lie"] and a.got("value/1") == ["lie"])
        await world.quiet()
        assert a.got("log/1") == a.got("value/1") == ["lie"]

    run_zones(scene)


def test_an_older_term_is_refused() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        newer = await raw_zone_peer(world, a)
        await newer.welcomed(term=7)
        await newer.say(Events((event("a/1"),)))
        await newer.heard(EventsAck)
        older = await raw_zone_peer(world, a)
        await older.hello(term=6)
        assert await older.refused() == "stale"
        # Nor if the newer one has gone meanwhile: the grid remembers.
        newer.connection.abort()
        await world.quiet()
        older = await raw_zone_peer(world, a)
        await older.welcomed(term=6)
        await older.say(Events((event("a/2"),)))
        assert await older.refused() == "stale"
        assert "a/2" not in a.values

    run_zones(scene)


def test_a_member_that_floods_is_slowed_down_and_others_are_served() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        await a.select("news/**")
        await world.interest_known(a, b)
        liar = await raw_zone_peer(world, a)
        await liar.welcomed()
        sent = 0

        async def flood() -> None:
            nonlocal sent
            while True:
                sent += 1
                await liar.say(Events((event("flood/1", b'"' + b"x" * 10_000 + b'"'),) * 50))

        flooding = asyncio.create_task(flood())
        before = world.now()
        for number in range(10):
            await b.publish("news/1", str(number))
            await world.until(lambda number=number: a.values.get("news/1") == str(number), longest=2.0)  # type: ignore[misc]
        await world.quiet()
        seconds = world.now() - before
        # 50 MB/s and some buffers, whatever it sends.
        assert sent * 500_000 < seconds * 50e6 + 32e6
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)

    run_zones(scene)


def test_a_sender_that_is_no_sender_is_hung_up() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        for message in (EventsAck(1), InterestAll(1, ()), InterestDigest(1, "0"), Challenge((1,), "n")):
            liar = await raw_zone_peer(world, a)
            await liar.welcomed()
            await liar.say(message)
            assert await liar.refused() == "protocol"

    run_zones(scene)


def test_members_are_told_within_the_zone_alone() -> None:
    async def scene(world: VirtualZones) -> None:
        a, b = await world.clusters("A", "B")
        await world.zone("z", a, b)
        liar = await raw_zone_peer(world, a)
        await liar.welcomed()
        other = Member(zone=ZoneUid("other"), cluster=ClusterId("x"), fingerprints=("ab" * 32,))
        own = replace(a.member(ZoneUid("z")), revision=1_000, left=True)
        await liar.say(Members((other, own)))
        await world.quiet()
        assert (ZoneUid("other"), ClusterId("x")) not in a.links.knowledge.table.members
        known = a.links.knowledge.own
        assert known is not None
        assert not known.left

    run_zones(scene)


# --- What receivers may do --------------------------------------------------------------------------------------------


def test_interest_beyond_all_bounds_is_refused() -> None:
    async def scene(world: VirtualZones) -> None:
        _, peer = await false_receiver(world)
        many = tuple(f"t/{number}" for number in range(10 * MOST_SELECTORS))
        await peer.say(InterestAll(1, many))
        assert await peer.refused() == "limit"

    run_zones(scene)


@pytest.mark.parametrize("messages", [1, 5])
def test_acknowledging_what_was_not_sent_is_refused(messages: int) -> None:
    async def scene(world: VirtualZones) -> None:
        _, peer = await false_receiver(world)
        await peer.say(EventsAck(messages))
        assert await peer.refused() == "protocol"

    run_zones(scene)


def test_changes_that_do_not_follow_and_digests_that_differ_are_answered_by_a_question() -> None:
    async def scene(world: VirtualZones) -> None:
        _, peer = await false_receiver(world)
        await peer.say(InterestAll(1, ("a/**",)))
        await peer.say(InterestChange(5, frozenset({parse_selector("b/**")}), frozenset()))
        await peer.heard(InterestAsk)
        await peer.say(InterestAll(6, ("a/**",)))
        await peer.say(InterestDigest(6, "0123456789abcdef"))
        await peer.heard(InterestAsk)

    run_zones(scene)


def test_a_receiver_that_acknowledges_nothing_is_sent_a_bounded_share() -> None:
    async def scene(world: VirtualZones) -> None:
        a, peer = await false_receiver(world)
        await peer.say(InterestAll(1, ("**",)))
        await world.quiet()
        for number in range(3_000):
            await a.publish(f"t/{number % 100}", "x" * 10_000)
        await world.quiet()
        assert peer.connection.bytes_in < 1_000_000
        assert world.network.bytes["a-n1", "false"] < 8 * 1024 * 1024

    run_zones(scene)


def test_interest_that_changes_all_the_time_does_not_keep_the_grid_busy() -> None:
    async def scene(world: VirtualZones) -> None:
        a, peer = await false_receiver(world)
        for number in range(100):
            await a.publish(f"t/{number}", "x")
        reads = 0
        original = a.node.grid.topics.values

        def counted(partition: int) -> AsyncIterator[Sequence[TopicValue]]:
            nonlocal reads
            reads += 1
            return original(partition)

        a.node.grid.topics.values = counted  # type: ignore[method-assign]
        for revision in range(1, 1_000):
            selectors = ("**",) if revision % 2 else ()
            await peer.say(InterestAll(revision, selectors))
            await world.quiet(0.01)
        assert reads < 256 + 10 * 12 + 64

    run_zones(scene)


@pytest.mark.parametrize(
    "told",
    [
        InterestAll(1, ("**",)),
        InterestChange(1, frozenset({parse_selector("**")}), frozenset()),
        InterestDigest(0, "0123456789abcdef"),
    ],
)
def test_the_other_end_of_a_join_does_not_choose_what_crosses(told: ZoneMessage) -> None:
    async def scene(world: VirtualZones) -> None:
        a, partner = await false_end_of_a_join(world, "public/**")
        await a.publish("public/1", "for all")
        await a.publish("secret/plan", "for few")
        assert [each.topic for each in (await partner.heard(Events)).events] == ["public/1"]
        await partner.say(told)
        assert await partner.refused() == "protocol"

    run_zones(scene)


def test_what_a_join_does_not_select_stays_whatever_is_believed_of_the_interest_there() -> None:
    async def scene(world: VirtualZones) -> None:
        a, partner = await false_end_of_a_join(world, "public/**")
        there = topic_partition(TopicPath("public/1"), 1)
        secret = next(each for n in count() if topic_partition(TopicPath(each := f"secret{n}/plan"), 1) == there)
        await world.until(lambda: a.is_linked("to-b"))
        await world.quiet()
        a.links._carried[LinkName("join:to-b/0")].progress.heard.whole(1, [parse_selector("**")])
        await a.publish(secret, "for few")
        await partner.say(ValuesAsk())
        await a.publish("public/1", "for all")
        await a.publish(secret, "for few, again")
        await a.publish("public/2", "for all")
        sent: list[str] = []
        while "public/2" not in sent:
            sent += [each.topic for each in (await partner.heard(Events)).events]
        assert set(sent) == {"public/1", "public/2"}

    run_zones(scene)
