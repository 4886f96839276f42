"""The contract of ``ZoneStore``: records by rank, interest that ends with its node, links that one node has."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

import pytest

from gateway.core.topics.selectors import Selector, parse_selector
from gateway.core.types import GridGeneration, NodeRef
from gateway.core.zones.compaction import MOST_SELECTORS
from gateway.core.zones.records import (
    MOST_JOINS,
    MOST_ZONES,
    Join,
    JoinDirection,
    Member,
    Membership,
    Zone,
    ZoneUid,
    zone_key,
)
from gateway.core.zones.routes import ClusterId
from gateway.ports import (
    Carrier,
    Grid,
    LeaseLost,
    LinkName,
    OtherZone,
    StreamPosition,
    TooManyRecords,
    ZoneTable,
)
from tests.contract.harness import LONG, Harness, node
from tests.contract.listening import Reader, eventually_none
from tests.support.clock import eventually

KEY = zone_key(b"a secret of sixteen bytes")
HERE = ClusterId("here")
THERE = ClusterId("there")


def zone(uid: str = "z1", name: str = "north", *, made: float = 1000.0, seeds: tuple[str, ...] = ()) -> Zone:
    """Make a zone."""
    return Zone(uid=ZoneUid(uid), name=name, key=KEY, made=made, seeds=seeds)


def member(
    uid: str = "z1", cluster: str = HERE, *, revision: int = 1, urls: tuple[str, ...] = ("wss://a.example:8300",)
) -> Member:
    """Make a member."""
    return Member(
        zone=ZoneUid(uid), cluster=ClusterId(cluster), urls=urls, fingerprints=("ab" * 32,), revision=revision
    )


def join(name: str = "to-south", *, made: float = 1000.0, selectors: tuple[str, ...] = ("prices/**",)) -> Join:
    """Make a join."""
    return Join(
        name=name,
        direction=JoinDirection.OUT,
        selectors=tuple(map(parse_selector, selectors)),
        urls=("wss://b.example:8300",),
        fingerprints=("cd" * 32,),
        key=KEY,
        made=made,
    )


def selectors(*texts: str) -> frozenset[Selector]:
    """Make selectors."""
    return frozenset(map(parse_selector, texts))


class Tables(Reader):
    """Follows what one node is told of zones."""

    def __init__(self, grid: Grid) -> None:
        super().__init__(grid)
        self.tables: list[ZoneTable] = []

    async def _read(self) -> None:
        async for table in self.grid.zones.follow():
            self.tables.append(table)

    async def shows(self, table: ZoneTable) -> None:
        """Wait until it is this."""
        await eventually(lambda: self.tables[-1:] == [table], message=f"{table}, not {self.tables[-1:]}")


class Interests(Reader):
    """Follows what one node is told of interest."""

    def __init__(self, grid: Grid) -> None:
        super().__init__(grid)
        self.told: list[Mapping[NodeRef, AbstractSet[Selector]]] = []

    async def _read(self) -> None:
        async for interest in self.grid.zones.follow_interest():
            self.told.append(interest)

    async def shows(self, interest: Mapping[NodeRef, AbstractSet[Selector]]) -> None:
        """Wait until it is this."""
        await eventually(lambda: self.told[-1:] == [interest], message=f"{interest}, not {self.told[-1:]}")


# --- Records ----------------------------------------------------------------------------------------------------------


async def test_a_follower_is_given_everything_again_after_each_change(harness: Harness) -> None:
    """Yield everything, and again everything after each change."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    assert await n1.zones.put(zone(), join()) == 2
    async with Tables(n2) as tables:
        await tables.shows(ZoneTable.of([zone(), join()]))
        await n1.zones.enter(zone(), member(), made=5.0)
        inside = Membership(zone=ZoneUid("z1"), made=5.0)
        await tables.shows(ZoneTable.of([zone(), join(), member(), inside]))
        assert tables.tables[-1].zone == zone()
        assert await n1.zones.remove_join("to-south")
        await tables.shows(ZoneTable.of([zone(), member(), inside]))
        assert not any(each.lost_writes for each in tables.tables)
    assert await n1.zones.read() == ZoneTable.of([zone(), member(), inside])


async def test_of_two_records_of_one_name_the_one_of_the_higher_rank_stays(harness: Harness) -> None:
    """Each in the place of an earlier one of the same zone, member or name, if its rank is higher."""
    grid = await harness.grid()
    later = join(made=2000.5, selectors=("news/*", "a/*/b"))
    assert await grid.zones.put(later) == 1
    assert await grid.zones.put(join(made=2000.5)) == 0
    assert await grid.zones.put(join(made=1999.0), zone()) == 1
    assert await grid.zones.read() == ZoneTable.of([later, zone()])


async def test_two_zones_of_one_name_stand_side_by_side(harness: Harness) -> None:
    """003-08."""
    grid = await harness.grid()
    assert await grid.zones.put(zone("z1", "north"), zone("z2", "north")) == 2
    table = await grid.zones.read()
    assert {each.uid for each in table.zones.values() if each.name == "north"} == {"z1", "z2"}
    assert table.zone is None


async def test_a_cluster_is_in_one_zone_at_most(harness: Harness) -> None:
    """003-02. OtherZone: it is in another one."""
    grid = await harness.grid()
    await grid.zones.enter(zone("z1"), member("z1"), made=1.0)
    with pytest.raises(OtherZone) as raised:
        await grid.zones.enter(zone("z2"), member("z2"), made=2.0)
    assert raised.value.zone == "z1"
    assert (await grid.zones.read()).zones.keys() == {"z1"}
    await grid.zones.enter(zone("z1"), member("z1"), made=3.0)
    assert (await grid.zones.read()).members == {("z1", HERE): member()}, "saying it again changes nothing"


async def test_who_leaves_is_remembered_and_the_zone_stays(harness: Harness) -> None:
    """003-25. This cluster's member is one that has left. The zone stays known."""
    grid = await harness.grid()
    await grid.zones.enter(zone(), member(), made=1.0)
    assert await grid.zones.leave(HERE, made=2.0) == "z1"
    assert await grid.zones.leave(HERE, made=3.0) is None
    table = await grid.zones.read()
    assert table.zone is None
    assert table.zones == {"z1": zone()}
    assert table.members[ZoneUid("z1"), HERE] == Member(zone=ZoneUid("z1"), cluster=HERE, revision=2, left=True)
    assert table.members_of(ZoneUid("z1")) == []
    assert await grid.zones.merge([member(revision=2)], own=THERE) == 0, "an older list does not bring it back"
    await grid.zones.enter(zone(), member(), made=4.0)
    assert (await grid.zones.read()).members_of(ZoneUid("z1")) == [member(revision=3)]


async def test_members_are_merged_by_their_own_revisions(harness: Harness) -> None:
    """Each that is known here with a lower revision, or not at all."""
    grid = await harness.grid()
    await grid.zones.enter(zone(), member(), made=1.0)
    there, gone = member(cluster=THERE, revision=5), replace(member(cluster="gone", revision=7), left=True)
    assert await grid.zones.merge([there, gone], own=HERE) == 2
    assert await grid.zones.merge([member(cluster=THERE, revision=4), gone], own=HERE) == 0
    assert await grid.zones.merge([member(revision=1, urls=())], own=HERE) == 0
    assert (await grid.zones.read()).members_of(ZoneUid("z1")) == [member(), there]


async def test_what_others_believe_of_this_cluster_only_raises_its_revision(harness: Harness) -> None:
    """The own one is raised above it, so that others believe it again."""
    grid = await harness.grid()
    await grid.zones.enter(zone(), member(), made=1.0)
    assert await grid.zones.merge([replace(member(revision=9, urls=()), left=True)], own=HERE) == 1
    assert (await grid.zones.read()).members[ZoneUid("z1"), HERE] == member(revision=10)


async def test_a_grid_that_lost_everything_gets_it_back(fragile: Harness) -> None:
    """Put back those that a grid which lost writes holds not at all, or with a lower rank."""
    grid = await fragile.grid()
    async with Tables(grid) as tables:
        await grid.zones.put(join(made=1.0))
        await grid.zones.enter(zone(), member(), made=5.0)
        await eventually(lambda: bool(tables.tables) and tables.tables[-1].zone == zone(), message="it is known")
        known = tables.tables[-1]
        await fragile.go_away()
        await fragile.come_back(emptied=True)
        await eventually(lambda: tables.tables[-1] == ZoneTable(), message="all is lost")
        assert tables.tables[-1].lost_writes
        await grid.zones.put(join(made=3.0))
        assert await grid.zones.restore(known.records) == 3
        await tables.shows(replace(known, joins={"to-south": join(made=3.0)}))


async def test_there_are_only_so_many_records(harness: Harness) -> None:
    """TooManyRecords; nothing was written."""
    grid = await harness.grid()
    assert await grid.zones.put(*(join(f"j{number}") for number in range(MOST_JOINS))) == MOST_JOINS
    with pytest.raises(TooManyRecords):
        await grid.zones.put(zone(), join("another"))
    table = await grid.zones.read()
    assert (len(table.zones), len(table.joins)) == (0, MOST_JOINS)
    assert await grid.zones.put(join("j0", made=2000.0)) == 1, "one that is there may change"
    await grid.zones.put(*(zone(f"z{number}") for number in range(MOST_ZONES)))
    with pytest.raises(TooManyRecords):
        await grid.zones.enter(zone("another"), member("another"), made=1.0)
    assert (await grid.zones.read()).membership is None
    assert await grid.zones.restore([join("another"), zone("z0", made=2000.0)]) == 1, "what has no room is left out"


async def test_a_change_whose_answer_was_lost_can_be_asked_for_again(harness: Harness) -> None:
    """Asking again with the same arguments gives the same result as asking once."""
    grid = await harness.grid()
    await harness.asked_again(grid, lambda: grid.zones.enter(zone(), member(), made=1.0))
    assert (await grid.zones.read()).members == {("z1", HERE): member()}
    await harness.asked_again(grid, lambda: grid.zones.put(join()))
    assert (await grid.zones.read()).joins == {"to-south": join()}


# --- Interest ---------------------------------------------------------------------------------------------------------


async def test_interest_is_told_whole_and_by_changes(harness: Harness) -> None:
    """Yield what the sessions of all nodes select, and again all of it after each change."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    first, second = node("n1"), node("n2")
    await n1.nodes.join(first, lease=LONG)
    await n1.nodes.join(second, lease=LONG)
    await n1.zones.put_interest(first, selectors("a/**", "b/ünïcode ✓"), keep=LONG)
    async with Interests(n2) as interests:
        await interests.shows({first: selectors("a/**", "b/ünïcode ✓")})
        await n2.zones.put_interest(second, selectors("a/**"), keep=LONG)
        await interests.shows({first: selectors("a/**", "b/ünïcode ✓"), second: selectors("a/**")})
        before = interests.told[-1][second]
        await n1.zones.change_interest(first, added=selectors("c"), dropped=selectors("a/**"), keep=LONG)
        await interests.shows({first: selectors("b/ünïcode ✓", "c"), second: selectors("a/**")})
        assert interests.told[-1][second] is before, "the set of a node that has not changed is the same object"
        await n1.zones.put_interest(first, selectors("d"), keep=LONG)
        await interests.shows({first: selectors("d"), second: selectors("a/**")})
        count = len(interests.told)
        await n1.zones.put_interest(first, selectors("d"), keep=LONG)
        await n1.zones.change_interest(first, added=(), dropped=selectors("d"), keep=LONG)
        await interests.shows({second: selectors("a/**")})
        assert len(interests.told) == count + 1, "what is told already is no change"


async def test_interest_outlives_its_node_by_so_long_and_no_longer(harness: Harness) -> None:
    """Forget what nodes have told that have had no lease for as long as they said."""
    grid = await harness.grid()
    first, second, third = node("n1"), node("n2"), node("n3")
    for each in (first, second, third):
        await grid.nodes.join(each, lease=LONG)
        await grid.zones.put_interest(each, selectors("a"), keep=harness.roomy if each == first else 0.0)
    assert await grid.zones.sweep_interest() == 0
    await grid.nodes.leave(first)
    await grid.nodes.leave(second)
    async with Interests(grid) as interests:
        assert await grid.zones.sweep_interest() == 1, "what the first one told counts for a while"
        await interests.shows({first: selectors("a"), third: selectors("a")})
        await harness.advance(harness.roomy)
        await eventually_swept(grid)
        await interests.shows({third: selectors("a")})


async def eventually_swept(grid: Grid) -> None:
    """Sweep until nothing of gone nodes is left; the grid's clock may be a little behind."""
    await eventually_none(grid.zones.sweep_interest)


async def test_interest_of_a_node_that_comes_back_does_not_end(harness: Harness) -> None:
    """Of nodes that have had no lease for as long as they said."""
    grid = await harness.grid()
    await grid.nodes.join(node("n1"), lease=LONG)
    await grid.zones.put_interest(node("n1"), selectors("a"), keep=harness.short)
    await grid.nodes.leave(node("n1"))
    assert await grid.zones.sweep_interest() == 1
    await grid.nodes.join(node("n1"), lease=LONG)
    await harness.advance(2 * harness.short)
    assert await grid.zones.sweep_interest() == 0
    async with Interests(grid) as interests:
        await interests.shows({node("n1"): selectors("a")})


async def test_who_has_no_lease_tells_nothing(harness: Harness) -> None:
    """LeaseLost: the node has no lease; nothing was written."""
    grid = await harness.grid()
    with pytest.raises(LeaseLost):
        await grid.zones.put_interest(node("n1"), selectors("a"), keep=1.0)
    await grid.nodes.join(node("n1"), lease=LONG)
    with pytest.raises(ValueError, match="at most"):
        await grid.zones.put_interest(
            node("n1"), selectors(*(f"a/{number}" for number in range(MOST_SELECTORS + 1))), keep=1.0
        )
    async with Interests(grid) as interests:
        await interests.shows({})


# --- Carriers and cursors ---------------------------------------------------------------------------------------------


async def test_one_node_has_a_link_and_keeps_it(harness: Harness) -> None:
    """Take links that nobody has, and keep those that the node has."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    first, second = node("n1"), node("n2")
    links = [LinkName("there"), LinkName("elsewhere/3")]
    taken = await n1.zones.carry(first, links, lease=LONG)
    assert {each.node for each in taken.values()} == {first}
    assert await n2.zones.carry(second, links[:1], lease=LONG) == {links[0]: taken[links[0]]}
    assert await n1.zones.carry(first, links, lease=LONG) == taken, "the term stays"
    assert await n2.zones.carriers() == taken
    await n2.zones.release(second, links)
    assert await n2.zones.carriers() == taken, "nobody gives back what another node has"
    await n1.zones.release(first, links[:1])
    (carrier,) = (await n2.zones.carry(second, links[:1], lease=LONG)).values()
    assert carrier.node == second
    assert carrier.term > max(each.term for each in taken.values())
    assert 0 < carrier.left <= LONG


async def test_a_link_can_be_taken_when_its_time_is_over(harness: Harness) -> None:
    """Whoever has one keeps it for as long as it asks in time."""
    grid = await harness.grid()
    first, second, link = node("n1"), node("n2"), LinkName("there")
    (before,) = (await grid.zones.carry(first, [link], lease=harness.short)).values()
    await harness.advance(2 * harness.short)
    await eventually_free(grid)
    assert (await grid.zones.carry(first, [link], lease=harness.short))[link].term >= before.term
    await harness.advance(2 * harness.short)
    await eventually_free(grid)
    (after,) = (await grid.zones.carry(second, [link], lease=LONG)).values()
    assert after == Carrier(second, after.term)
    assert after.term > before.term
    assert (await grid.zones.carry(first, [link], lease=LONG))[link] == after


async def eventually_free(grid: Grid) -> None:
    """Wait until nobody has any link."""
    await eventually_none(grid.zones.carriers)


async def test_terms_rise_over_the_loss_of_the_grid(fragile: Harness) -> None:
    """Term: grows with each node that takes it."""
    grid = await fragile.grid()
    link = LinkName("there")
    (before,) = (await grid.zones.carry(node("n1"), [link], lease=LONG)).values()
    await fragile.go_away()
    await fragile.come_back(emptied=True)
    (after,) = (await grid.zones.carry(node("n2"), [link], lease=LONG)).values()
    assert after.term > before.term


async def test_cursors_are_noted_by_the_latest_carrier(harness: Harness) -> None:
    """False if a carrier of a later term has noted something; then nothing was written."""
    grid = await harness.grid()
    link = LinkName("there")
    position, later = StreamPosition(GridGeneration(1), 7), StreamPosition(GridGeneration(1), 9)
    assert await grid.zones.cursors(link) == {}
    assert await grid.zones.advance(link, 3, {17: position, 0: later})
    assert await grid.zones.advance(link, 3, {17: later})
    assert not await grid.zones.advance(link, 2, {17: position})
    assert await grid.zones.cursors(link) == {17: later, 0: later}
    assert await grid.zones.advance(link, 4, {17: position}), "it may also go back"
    assert await grid.zones.cursors(LinkName("another")) == {}
    await grid.zones.forget_link(link)
    assert await grid.zones.cursors(link) == {}
    assert await harness.inventory() == set()
