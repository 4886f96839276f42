"""What is read from those who know the masters, and how commands find theirs."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import Any, cast

import pytest
from redis.asyncio.connection import AbstractConnection
from redis.crc import key_slot
from redis.exceptions import RedisError

from gateway.adapters.redis import adoption
from gateway.adapters.redis.adoption import Server, Unfitting, identify
from gateway.adapters.redis.batcher import Batcher, Group, Redirected
from gateway.adapters.redis.cluster import ClusterFinder
from gateway.adapters.redis.dialer import Dialer
from gateway.adapters.redis.keys import NODES_TAG, TAGS, Keys
from gateway.adapters.redis.router import Router
from gateway.adapters.redis.scripts import Command
from gateway.adapters.redis.topology import NobodyKnows, SentinelFinder, SingleFinder, Topology, _Answer
from gateway.ports import GridUnavailable
from gateway.settings.grid_url import read_grid_url
from gateway.settings.values import HostPort

A, B, C, D = (HostPort(f"10.0.0.{number}", 7000) for number in range(1, 5))
PLACE = read_grid_url("redis+cluster://10.0.0.1:7000")


def finder() -> ClusterFinder:
    return ClusterFinder(PLACE.hosts, dialer=Dialer(PLACE, name="n", timeout=1), tags=TAGS)


def entry(first: int, last: int, *nodes: HostPort | tuple[bytes | None, int]) -> list[Any]:
    listed = [(each.host.encode(), each.port) if isinstance(each, HostPort) else each for each in nodes]
    return [first, last, *([host, port, b"id", []] for host, port in listed)]


THIRDS = [entry(10923, 16383, C), entry(0, 5460, A, D), entry(5461, 10922, B)]


def test_every_hash_tag_has_the_master_of_its_slot() -> None:
    topology = finder().read(THIRDS, A)
    assert topology.masters == (A, B, C)
    for tag in TAGS:
        assert topology.masters[topology.shard(tag)] == (A, B, C)[min(key_slot(tag.encode()) // 5461, 2)]
    assert topology.sharded
    assert str(topology) == "10.0.0.1:7000, 10.0.0.2:7000, 10.0.0.3:7000"


class AskedTogether(ClusterFinder):
    """Has two nodes that end in the same turn of the loop: one answers, the other breaks its connection."""

    async def _ask(self, address: HostPort) -> Topology:
        await asyncio.sleep(0)
        if address == A:
            raise RedisError("gone")
        return self.read([entry(0, 16383, B)], B)


async def test_a_node_that_fails_as_another_one_answers_leaves_nothing_behind() -> None:
    """An error that nobody looks at is told by asyncio when the task is collected, as a bug."""
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    asked = AskedTogether(PLACE.hosts, dialer=Dialer(PLACE, name="n", timeout=1), tags=TAGS)
    for addresses in ((A, B), (B, A)):
        found = await asked._first_answer(addresses, [])
        assert found is not None
        assert found.masters == (B,)
    gc.collect()
    assert complaints == []


def test_a_slot_of_ours_that_nobody_serves_is_no_grid() -> None:
    slot = key_slot(b"s0")
    for holes in ([], [entry(0, slot - 1, A), entry(slot + 1, 16383, B)], [entry(slot + 1, 16383, B)]):
        with pytest.raises(GridUnavailable, match="no node"):
            finder().read(holes, A)


def test_a_node_that_does_not_know_its_own_address_is_where_it_was_asked() -> None:
    assert finder().read([entry(0, 16383, (b"", 7000))], B).masters == (B,)
    assert finder().read([entry(0, 16383, (None, 7000))], B).masters == (B,)
    with pytest.raises(GridUnavailable):
        finder().read([entry(0, 16383, (b"?", 7000))], B)


class BatcherStub:
    """Answers each command by who it is and what was asked."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.futures: list[tuple[Sequence[Command], asyncio.Future[list[Any]]]] = []

    def submit(
        self,
        commands: Sequence[Command],
        *,
        gated: bool = False,
        patient: bool = False,
        asked: float | None = None,
    ) -> asyncio.Future[list[Any]]:
        assert gated
        self.futures.append((commands, asyncio.get_running_loop().create_future()))
        return self.futures[-1][1]

    def answer(self) -> None:
        for commands, future in self.futures:
            future.set_result([(self.name, command[1]) for command in commands])

    def shut(self, error: GridUnavailable) -> None:
        for _, future in self.futures:
            if not future.done():
                future.set_exception(error)


def routed() -> tuple[Router, list[BatcherStub]]:
    router, stubs = Router(timeout=1.0, redirected=lambda: None), [BatcherStub(name) for name in "abc"]
    router.open(finder().read(THIRDS, A), [cast("Batcher", each) for each in stubs])
    return router, stubs


async def test_commands_go_to_the_master_of_their_key_and_replies_come_back_in_order() -> None:
    router, stubs = routed()
    keys = Keys("p")
    commands: list[Command] = [("HGETALL", key) for key in keys.values]
    replies = router.submit(commands, gated=True)
    for each in reversed(stubs):
        each.answer()
    expected = ["abc"[min(key_slot(f"t{number}".encode()) // 5461, 2)] for number in range(64)]
    assert [name for name, _ in await replies] == expected
    assert [key for _, key in await replies] == list(keys.values)
    assert [len(each.futures) for each in stubs] == [1, 1, 1]


async def test_scripts_are_routed_by_their_first_key() -> None:
    router, stubs = routed()
    router.submit([(b"EVALSHA", b"0" * 40, 1, Keys("p").grid)], gated=True)
    assert [len(each.futures) for each in stubs] == [key_slot(b"nodes") // 5461 == number for number in range(3)]
    assert router.serving(NODES_TAG) is cast("Batcher", stubs[key_slot(b"nodes") // 5461])


async def test_one_master_that_fails_fails_the_whole_call() -> None:
    router, stubs = routed()
    replies = router.submit([("HGETALL", key) for key in Keys("p").values], gated=True)
    stubs[0].answer()
    router.shut(GridUnavailable("gone"))
    with pytest.raises(GridUnavailable, match="gone"):
        await replies
    with pytest.raises(GridUnavailable, match="gone"):
        router.submit([("HGETALL", "p:{s1}:x")], gated=True)
    with pytest.raises(GridUnavailable, match="gone"):
        router.serving("s1")


def moved(tag: str) -> tuple[str, int, int]:
    """A key of a hash tag, its master in ``THIRDS``, and the one it is moved to."""
    here = min(key_slot(tag.encode()) // 5461, 2)
    return f"p:{{{tag}}}:x", here, (here + 1) % 3


def group_of(stub: BatcherStub, number: int, *, redirected: bool) -> Group:
    """Answer what was submitted as number *number* as a batcher does that was redirected, or was not."""
    commands, future = stub.futures[number]
    group = Group(commands, future, gated=True, asked=asyncio.get_running_loop().time())
    reply = Redirected("MOVED 1 host:1") if redirected else (stub.name, "executed")
    group.replies, group.redirected = [reply for _ in commands], redirected
    return group


async def test_what_is_redirected_is_sent_again_before_all_that_was_asked_for_later() -> None:
    router, stubs = routed()
    key, here, there = moved("t7")
    answers = [router.submit([("SET", key, number)], gated=True) for number in range(3)]
    router.redirected(group_of(stubs[here], 0, redirected=True))
    holds_it = router.holds
    assert holds_it
    # What is asked for now waits behind what is on its way still and will be redirected, too.
    answers.append(router.submit([("SET", key, 3)], gated=True))
    sooner = group_of(stubs[here], 1, redirected=True)
    sooner.asked -= 0.001
    router.redirected(sooner)
    last = group_of(stubs[here], 2, redirected=True)
    last.asked -= 0.0005
    router.redirected(last)
    other, its_master, _ = moved("s1")
    router.submit([("SET", other, 9)], gated=True)
    assert stubs[its_master].futures[-1][0] == [("SET", other, 9)], "what is for another tag does not wait"
    topology = finder().read(THIRDS, A)
    router.release(Topology(topology.masters, topology.shards | {"t7": there}))
    sent = [commands[0][2] for commands, _ in stubs[there].futures if commands[0][1] == key]
    assert sorted(sent) == [0, 1, 2, 3]
    assert sent.index(1) < sent.index(2) < sent.index(3)
    assert not router.holds
    for commands, future in stubs[there].futures:
        if not future.done():
            future.set_result([("there", command[2]) for command in commands])
    assert [(await each)[0][1] for each in answers] == [0, 1, 2, 3]


async def test_only_what_was_not_executed_is_sent_again() -> None:
    router, stubs = routed()
    key, here, there = moved("t7")
    replies = router.submit([("SET", key, 1), ("SET", key, 2)], gated=True)
    group = group_of(stubs[here], 0, redirected=True)
    group.replies[0] = "executed"
    router.redirected(group)
    topology = finder().read(THIRDS, A)
    router.release(Topology(topology.masters, topology.shards | {"t7": there}))
    ((commands, future),) = stubs[there].futures
    assert commands == [("SET", key, 2)]
    future.set_result(["executed there"])
    assert await replies == ["executed", "executed there"]


async def test_what_is_redirected_for_too_long_is_refused() -> None:
    router, stubs = routed()
    key, here, _ = moved("t7")
    replies = router.submit([("SET", key, 1)], gated=True)
    group = group_of(stubs[here], 0, redirected=True)
    group.asked -= 1.0
    router.redirected(group)
    (reply,) = await replies
    assert isinstance(reply, GridUnavailable)
    assert not router.holds
    assert "t7" in router.meeting


async def test_what_is_held_fails_with_the_grid() -> None:
    router, stubs = routed()
    key, here, _ = moved("t7")
    replies = [router.submit([("SET", key, 1)], gated=True)]
    router.redirected(group_of(stubs[here], 0, redirected=True))
    replies.append(router.submit([("SET", key, 2)], gated=True))
    router.shut(GridUnavailable("gone"))
    for each in replies:
        with pytest.raises(GridUnavailable, match="gone"):
            await each


SENTINELS = read_grid_url("redis+sentinel://10.0.0.1,10.0.0.2,10.0.0.3/m")


class SentinelsStub(SentinelFinder):
    """Three Sentinels that say what a test wants."""

    def __init__(self) -> None:
        super().__init__(SENTINELS, dialer=Dialer.to_sentinels(SENTINELS, timeout=1))
        self.answers: list[tuple[HostPort, int]] = []

    async def _ask_all(self) -> tuple[list[_Answer], list[str]]:
        return [_Answer(address, epoch, down=False) for address, epoch in self.answers], ["a: gone"]

    async def looked(self, *answers: tuple[HostPort, int]) -> HostPort | None:
        self.answers = list(answers)
        found = await self.look(lambda _: asyncio.sleep(0))
        try:
            topology = await self.find()
        except NobodyKnows:
            assert found is None
            return None
        assert found == topology
        return topology.masters[0]


async def test_a_sentinel_that_missed_a_failover_is_not_followed_back() -> None:
    finder = SentinelsStub()
    assert await finder.looked((A, 0), (A, 0), (A, 0)) == A
    assert await finder.looked((A, 0), (B, 1), (A, 0)) == B, "the latest failover counts, whoever saw it"
    assert await finder.looked((A, 0)) is None, "it was cut off from the others, and is alone now"
    assert await finder.looked() is None
    assert await finder.looked((B, 1)) == B
    assert await finder.looked((A, 0), (A, 0)) == A, "most of all have been set up anew"
    assert await finder.looked((C, 1)) == C, "and count from there"


INFO = b"redis_version:7.0.15\r\nredis_mode:%s\r\nrun_id:%s\r\nrole:master\r\nloading:0\r\nmaster_replid2:%s\r\n"


def answering(
    monkeypatch: pytest.MonkeyPatch, slots: dict[str, Any], *, mode: bytes, replid2: bytes = b"0" * 40
) -> None:
    """Have connections, which are just names here, answer with the slots given for them."""

    async def converse(connection: Any, commands: Sequence[Command]) -> list[Any]:
        if commands[0] == ("CLUSTER", "SLOTS"):
            return [slots[connection]]
        about = INFO % (mode, connection.encode(), replid2)
        return [about, b"", b"", [b"100", b"500000"], 7]

    monkeypatch.setattr(adoption, "converse", converse)


def named(*names: str) -> list[AbstractConnection]:
    return [cast("AbstractConnection", name) for name in names]


async def test_masters_that_agree_are_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, {"a": THIRDS, "b": THIRDS, "c": THIRDS}, mode=b"cluster")
    members = await identify(finder(), finder().read(THIRDS, A), named("a", "b", "c"))
    assert [each.server for each in members] == [Server(name, "", 7, 100.5) for name in "abc"]
    assert [each.label for each in members] == ["10.0.0.1:7000", "10.0.0.2:7000", "10.0.0.3:7000"]


async def test_a_master_that_was_replaced_and_does_not_know_it_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut off with this node, and names itself; the others have promoted its replica."""
    promoted = [entry(0, 5460, D), *THIRDS[::2], THIRDS[2]]
    answering(monkeypatch, {"a": THIRDS, "b": promoted, "c": promoted}, mode=b"cluster")
    with pytest.raises(Unfitting, match="does not agree"):
        await identify(finder(), finder().read(THIRDS, A), named("a", "b", "c"))


@pytest.mark.parametrize(("mode", "wanted"), [(b"cluster", r"redis\+cluster"), (b"sentinel", r"redis\+sentinel")])
async def test_a_url_of_another_kind_than_the_redis_is_told(
    monkeypatch: pytest.MonkeyPatch, mode: bytes, wanted: str
) -> None:
    answering(monkeypatch, {}, mode=mode)
    with pytest.raises(Unfitting, match=wanted):
        await identify(SingleFinder(), Topology((None,), {}), named("a"))


async def test_a_process_that_was_promoted_has_another_name_than_before(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, {}, mode=b"standalone", replid2=b"abc" * 14)
    (member,) = await identify(SingleFinder(), Topology((None,), {}), named("a"))
    assert member.server.name == "a:abcabcabcabc"
