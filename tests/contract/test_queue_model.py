"""Random steps of queues on memory and on a real Redis: the same answers, and each message in one place (P15)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import pytest
from redis.asyncio import Redis

from gateway.adapters.memory import MemoryGrid, MemoryGridServer
from gateway.adapters.redis.keys import Keys
from gateway.core.topics.topics import topic_partition
from gateway.core.types import Epoch, RequestNumber, SessionId, TopicPath
from gateway.ports import (
    Attached,
    DeliveryTag,
    Grid,
    MessageId,
    Overflow,
    Ownership,
    QueueBounds,
    SendCommand,
    SettleCommand,
    Settlement,
    SettleStep,
)
from tests.contract.examples import DEPTH, new_id
from tests.contract.harness import RedisHarness, node
from tests.support.redis_server import RedisServer
from tests.support.seeds import seeds

pytestmark = [pytest.mark.promise("P15"), pytest.mark.redis]

QUEUE: Final = TopicPath("work/items")
PARTITION: Final = topic_partition(QUEUE, DEPTH)
STEPS: Final = 250
SESSIONS: Final = 4
STALE: Final = 0.1
"""How often somebody asks by an old epoch or with an old number."""
EVEN: Final = 0.5
LONG_AGO: Final = 3600.0
"""Delays that are never over here: the two grids have clocks of their own."""


class Twin:
    """One of the two grids, with ids and tags of its own."""

    def __init__(self, grid: Grid, sessions: list[SessionId]) -> None:
        self.grid = grid
        self.sessions = sessions
        self.ids: list[MessageId] = []
        """In the order of sending, by which messages are named across the two."""
        self.held: dict[int, dict[MessageId, DeliveryTag]] = {}

    def names(self, messages: Any) -> list[int]:
        return [self.ids.index(each) for each in messages]

    def ownership(self, who: int, epoch: int) -> Ownership:
        return Ownership(self.sessions[who], node("n1"), Epoch(epoch))

    async def send(self, who: int, epoch: int, request: int, *, count: int, bounds: QueueBounds, delay: float) -> Any:
        commands = [
            SendCommand(
                self.ownership(who, epoch),
                RequestNumber(request + number),
                RequestNumber(0),
                QUEUE,
                b'"x"',
                b"",
                bounds,
                delay,
            )
            for number in range(count)
        ]
        results = await self.grid.queues.send(commands)
        for each in results:
            if (message := getattr(each, "message", None)) and message not in self.ids:
                self.ids.append(message)
        return [
            (type(each).__name__, getattr(each, "duplicate", None), self.names([message]) if message else None)
            for each in results
            for message in [getattr(each, "message", None)]
        ]

    async def attach(self, who: int, epoch: int, credit: int, bounds: QueueBounds) -> Any:
        attached = await _answer(
            lambda: self.grid.queues.attach(
                self.ownership(who, epoch), QUEUE, credit=credit, bounds=bounds, most_consumers=SESSIONS
            )
        )
        if not isinstance(attached, Attached):
            return attached
        self.held[who] = {each.message: each.tag for each in attached.held}
        return [(*self.names([each.message]), each.deliveries, each.redelivered) for each in attached.held]

    async def settle(
        self, who: int, epoch: int, request: int, *, outcome: Settlement, places: list[int], delay: float
    ) -> Any:
        held = list(self.held.get(who, {}).items())
        chosen = [held[place % len(held)] for place in places] if held else []
        messages = tuple((tag, message) for message, tag in dict(chosen).items())
        step = SettleStep(RequestNumber(request), outcome, messages, delay)
        command = SettleCommand(self.ownership(who, epoch), RequestNumber(0), QUEUE, DeliveryTag(0), (step,))
        results = await _answer(lambda: self.grid.queues.settle(command))
        if isinstance(results, str):
            return results
        return [(self.names(each.not_held), each.duplicate, each.complete) for each in results]

    async def leave(self, who: int, epoch: int, *, seen_all: bool) -> Any:
        tags = self.held.get(who, {}).values()
        seen = max(tags, default=DeliveryTag(0)) if seen_all else DeliveryTag(0)
        return await _answer(lambda: self.grid.queues.leave(self.ownership(who, epoch), QUEUE, seen=seen))

    async def look(self) -> Any:
        found = await self.grid.queues.look(QUEUE)
        letters = await self.grid.queues.dead(QUEUE, count=100)
        dead = [(*self.names([each.message.id]), each.reason, each.deliveries) for each in letters]
        if found is not None and found.oldest is not None:
            # The two grids have clocks of their own.
            found = found._replace(oldest=0)
        return found, dead


async def _answer(call: Callable[[], Any]) -> Any:
    try:
        return await call()
    except Exception as error:  # noqa: BLE001 - compared by their kind
        return type(error).__name__


@pytest.fixture
async def raw(shared_redis: RedisServer) -> AsyncIterator[Redis]:
    async with Redis(host="127.0.0.1", port=shared_redis.port) as client:
        yield client


async def look_at_places(raw: Redis, keys: Keys, gone: set[int]) -> None:
    """Q1: what was sent and is not settled is in one of ready, delayed, held, dead; counts and credits fit."""
    meta, messages, ready, timers, held, consumers, idle, dead, notes, *_ = keys.queue(PARTITION, QUEUE)
    read: Any = raw
    stored = {int(each) for each in await read.hkeys(messages)}
    holding = [each.decode().split() for each in await read.zrange(held, 0, -1)]
    delayed = [int(each[1:]) for each in await read.zrange(timers, 0, -1) if each[:1] == b"r"]
    places = [
        *(int(each) for each in await read.zrange(ready, 0, -1)),
        *delayed,
        *(int(number) for _, _, number in holding),
        *(int(each) for each in await read.zrange(dead, 0, -1)),
    ]
    assert sorted(places) == sorted(stored), "each in one place"
    assert not stored & gone, "what is settled never comes back"
    assert {int(each) for each in await read.hkeys(notes)} <= stored
    free = set()
    for session, record in (await read.hgetall(consumers)).items():
        _, credit, taken, *_ = map(int, record.split())
        assert taken == sum(each[0] == session.decode() for each in holding)
        if credit > taken:
            free.add(session)
    assert set(await read.zrange(idle, 0, -1)) == free
    lengths = [await read.hstrlen(messages, each) + 256 for each in await read.hkeys(messages)]
    if stored:
        assert sum(lengths) == sum(map(int, await read.hmget(meta, "bytes", "dead")))


class Walk:
    """Random steps of several sessions that send, consume and settle."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.bounds = QueueBounds(
            messages=chance.choice([5, 20, 1000]),
            overflow=chance.choice(list(Overflow)),
            deliveries=chance.choice([0, 2, 3]),
            exclusive=chance.random() < 0.3,
            dead=chance.choice([2, 1000]),
        )
        self.epochs = [1] * SESSIONS
        self.requests = [1] * SESSIONS
        self.kinds = [""] * SESSIONS

    def step(self) -> Callable[[Twin], Awaitable[Any]]:
        """Choose what both are asked for next."""
        chance, bounds = self.chance, self.bounds
        who = chance.randrange(SESSIONS)
        epoch = self.epochs[who] - (chance.random() < STALE)
        delay = chance.choice([0.0, 0.0, 0.0, LONG_AGO])
        kind = chance.choice(["send", "send", "attach", "settle", "settle", "settle", "leave", "revive"])
        request = self.requests[who]
        if kind == self.kinds[who] and chance.random() < 2 * STALE:
            # Asked again: a number is never used for two kinds of requests.
            request -= 1
        if kind == "send":
            self.kinds[who] = kind
            count = chance.randrange(1, 6)
            self.requests[who] = max(self.requests[who], request + count)
            return lambda twin: twin.send(who, epoch, request, count=count, bounds=bounds, delay=delay)
        if kind == "attach":
            self.epochs[who] += chance.random() < 3 * STALE
            newest, credit = self.epochs[who], chance.choice([0, 1, 3, 10])
            return lambda twin: twin.attach(who, newest, credit, bounds)
        if kind == "settle":
            outcome = chance.choice(list(Settlement))
            places = [chance.randrange(20) for _ in range(chance.randrange(0, 4))]
            by = request if chance.random() < EVEN else 0
            self.kinds[who] = kind if by else self.kinds[who]
            self.requests[who] = max(self.requests[who], by + 1)
            return lambda twin: twin.settle(who, epoch, by, outcome=outcome, places=places, delay=delay)
        flag = chance.random() < EVEN
        if kind == "leave":
            return lambda twin: twin.leave(who, epoch, seen_all=flag)
        return lambda twin: twin.grid.queues.revive(QUEUE, twin.ids[-5:], drop=flag)


@pytest.mark.parametrize("seed", seeds(6))
async def test_memory_and_redis_agree(seed: int, shared_redis: RedisServer, raw: Redis) -> None:
    """Whatever is asked for, both answer the same; and no message is lost, doubled or settled twice."""
    walk = Walk(seed)
    harness = RedisHarness(shared_redis)
    redis = await harness.grid()
    memory = MemoryGrid(MemoryGridServer(), node=node("n1"))
    await memory.start()
    names = [new_id() for _ in range(SESSIONS)]
    twins = (Twin(memory, names), Twin(redis, names))
    settled: set[int] = set()
    keys = Keys(_prefix(redis))
    client: Any = raw
    try:
        for number in range(STEPS):
            step = walk.step()
            answers = [await step(twin) for twin in twins]
            assert answers[0] == answers[1], f"step {number}"
            looks = [await twin.look() for twin in twins]
            assert looks[0] == looks[1], f"after step {number}"
            await look_at_places(raw, keys, settled)
            stored = {int(each) for each in await client.hkeys(keys.queue(PARTITION, QUEUE)[1])}
            settled |= {each for each in twins[1].ids if each not in stored}
    finally:
        await memory.close()
        await harness.close()


def _prefix(grid: Any) -> str:
    return str(grid._connection._keys._prefix)
