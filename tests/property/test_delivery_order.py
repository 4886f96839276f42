"""Live updates leave in the order of their events, but for those that say that they fold an older one (P6, P13).

So the event of an update without a mark can become a client's position in its partition: whatever was published there
before, and was to be sent, has been delivered, or folded into something that was delivered. What a feed has yet to
bring is not part of that: a position holds once the values of a selection have come.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from gateway.app.session.session import Session
from gateway.core.stream.transitions import State
from gateway.core.types import PacketId, TopicPath
from gateway.core.wire.packets import Update
from tests.support.delivery import PARAMETERS, DeliveryBench, Reader

NAMES: Final = ("x", "y", "z")
ROOTS: Final = ("p", "q")
OLD: Final = 12
"""Topics of each root that have a value before anybody selects them: a few portions of a feed."""
SELECTORS: Final = ("p/*", "q/*", "p/x", "**", "p/0", "*/y")
SMALL: Final = replace(PARAMETERS, resend_packets=40)
STEP: Final = 0.0005
"""Seconds of a look at the clock, so that a feed hands out a few topics at once."""

numbers = st.one_of(st.sampled_from(NAMES), st.integers(0, OLD - 1).map(str))
steps = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(ROOTS), st.lists(numbers, min_size=1, max_size=6)),
    st.tuples(st.just("publish"), st.sampled_from(ROOTS), st.lists(st.sampled_from(NAMES), min_size=1, max_size=6)),
    st.tuples(st.just("push back"), st.sampled_from(ROOTS), st.lists(numbers, min_size=2, max_size=6)),
    st.tuples(st.just("room"), st.booleans(), st.none()),
    st.tuples(st.just("acknowledge"), st.none(), st.none()),
    st.tuples(st.just("turns"), st.integers(1, 6), st.none()),
    st.tuples(st.just("subscribe"), st.sampled_from(SELECTORS), st.none()),
    st.tuples(st.just("unsubscribe"), st.sampled_from(SELECTORS), st.none()),
    st.tuples(st.just("cut"), st.none(), st.none()),
    st.tuples(st.just("give up"), st.none(), st.none()),
    st.tuples(st.just("come back"), st.none(), st.none()),
)


class Client:
    """What a client knows, and what it must have been told of."""

    def __init__(self) -> None:
        self.versions: Counter[str] = Counter()
        self.due: defaultdict[int, list[tuple[int, str, int]]] = defaultdict(list)
        """By partition: event, topic and version of the updates that it is owed."""
        self.awaited: set[str] = set()
        """Topics of which it has yet to be sent the value, as it has just selected them."""
        self.last: Counter[int] = Counter()
        """By partition: event of the last update without a mark."""
        self.marked = 0
        self.live = 0

    def take(self, update: Update) -> None:
        partition, _, sequence = map(int, update.event.split("-"))
        known = self.versions[update.topic]
        assert update.version >= known
        if not update.snapshot:
            assert update.version == known + 1 + update.folded
        self.versions[update.topic] = update.version
        if update.snapshot:
            return
        if update.folded:
            self.marked += 1
            return
        self.live += 1
        assert sequence > self.last[partition], "live updates without a mark come in the order of their events"
        self.last[partition] = sequence
        due = self.due[partition]
        for earlier, topic, version in due:
            if earlier <= sequence and topic not in self.awaited:
                assert self.versions[topic] >= version, f"{topic} {version} is behind the position {sequence}"
        self.due[partition] = [each for each in due if each[0] > sequence or each[1] in self.awaited]


class Walk:
    """A session under whatever comes, and its client."""

    def __init__(self) -> None:
        self.bench = DeliveryBench(step=STEP, parameters=SMALL)
        for root in ROOTS:
            self.bench.grid.publish([f"{root}/{number}" for number in range(OLD)])
        self.reader = Reader()
        self.session: Session = self.bench.session(self.reader)
        self.session.machine.receive_ack(PacketId(0), 0.0)  # it has been heard
        self.client = Client()
        self.taken = 0
        self.seen: set[str] = set()

    async def act(self, what: str, how: object, more: object) -> None:  # noqa: C901 - a list of what can happen
        session, machine = self.session, self.session.machine
        match what, how, more:
            case "publish", str(root), list(names):
                self.publish([f"{root}/{name}" for name in names])
            case "push back", str(root), list(names):
                self.make_room(room=False)
                for _ in range(2):
                    self.publish([f"{root}/{name}" for name in names])
                    await self.bench.turns(2)
            case "room", bool(room), _:
                self.make_room(room=room)
            case "acknowledge", _, _ if machine.state is State.ATTACHED:
                machine.receive_ack(self.reader.last, 0.0)
                self.bench.flusher.mark(session)
            case "turns", int(count), _:
                await self.bench.turns(count)
            case "subscribe", str(text), _:
                await self.subscribe(text)
            case "unsubscribe", str(text), _:
                await self.unsubscribe(text)
            case "cut", _, _ if session.connection is not None:
                session.connection = None
                self.bench.flusher.forget(session)
                machine.detach()
            case "give up", _, _:
                machine.give_up()
            case "come back", _, _ if session.connection is None:
                await self.come_back()
        self.read()

    def publish(self, topics: list[str]) -> None:
        batch = self.bench.grid.publish(topics)
        followed = self.bench.delivery.replicas.get(batch.partition) is not None
        for value in batch.values:
            if followed and self.session.selections.selects(value.topic):
                place = int(value.event.split("-")[-1])
                self.client.due[batch.partition].append((place, value.topic, value.version))
        if followed:
            self.bench.delivery.replicas.take_in(batch, lambda: None)

    async def subscribe(self, text: str) -> None:
        before = self.session.selections
        await self.bench.subscribe(self.session, text)
        self.client.awaited.update(topic for topic in self.selected() if not before.selects(topic))

    async def unsubscribe(self, text: str) -> None:
        selections = await self.bench.unsubscribe(self.session, text)
        for partition, due in self.client.due.items():
            self.client.due[partition] = [each for each in due if selections.selects(TopicPath(each[1]))]

    def make_room(self, *, room: bool) -> None:
        self.reader.room = room
        if self.session.connection is not None:
            self.bench.flusher.mark(self.session)

    def selected(self) -> dict[TopicPath, int]:
        selections = self.session.selections
        return {
            topic: value.version
            for values in self.bench.grid.values_of.values()
            for topic, value in values.items()
            if selections.selects(topic)
        }

    async def come_back(self) -> None:
        session, machine = self.session, self.session.machine
        machine.resume()
        if machine.can_reattach(received=self.reader.last, oldest=PacketId(1)):
            machine.reattach(received=self.reader.last, now=0.0)
            session.connection = self.reader  # type: ignore[assignment]
            self.bench.flusher.flush(session)
            self.seen.add("reattached")
            return
        machine.restart(0.0)
        self.bench.delivery.mute(session)
        self.reader.last = PacketId(0)
        session.connection = self.reader  # type: ignore[assignment]
        self.bench.flusher.flush(session)
        self.bench.delivery.select(session, session.selections)
        self.bench.delivery.feed(session)
        self.client.due.clear()
        self.client.last.clear()
        self.client.awaited.update(self.selected())
        self.seen.add("restarted")

    def read(self) -> None:
        for _, update in self.reader.updates[self.taken :]:
            self.client.take(update)
        self.taken = len(self.reader.updates)
        if self.session not in self.bench.flusher.feeds:
            self.client.awaited.clear()  # here the server can say that the position holds

    async def end(self) -> None:
        """Let the client read to the end: it holds the current value of all that it selects, and nothing is due."""
        if self.session.connection is None:
            await self.come_back()
        await self.bench.all_sent(self.session, self.reader)
        self.read()
        for topic, version in self.selected().items():
            assert self.client.versions[topic] == version, topic
        assert not self.client.awaited
        assert not self.bench.failures
        assert not self.bench.too_slow
        if self.client.marked:
            self.seen.add("marked")
        await self.bench.close()


@pytest.mark.promise("P6")
@given(st.sampled_from(SELECTORS), st.lists(steps, min_size=10, max_size=60))
async def test_a_position_is_true_whatever_happens(first: str, walk: list[tuple[str, object, object]]) -> None:
    one = Walk()
    await one.subscribe(first)
    for what, how, more in walk:
        await one.act(what, how, more)
    await one.end()
    for each in one.seen:
        event(each)


@pytest.mark.parametrize("reading", [True, False])
async def test_the_walk_sees_updates_in_order_and_marked_ones(*, reading: bool) -> None:
    """A property that nothing could break would prove nothing."""
    one = Walk()
    await one.subscribe("p/*")
    await one.bench.all_sent(one.session, one.reader)
    one.read()
    one.reader.room = reading
    for _ in range(3):
        await one.act("publish", "p", ["x", "y", "0"])
        await one.act("turns", 2, None)
    await one.end()
    assert (one.client.live > 0) is reading or one.client.live
    assert bool(one.client.marked) is not reading


async def test_the_client_notices_an_update_that_overtook_another() -> None:
    one = Walk()
    await one.subscribe("p/*")
    await one.bench.all_sent(one.session, one.reader)
    one.read()
    batch = one.bench.grid.publish(["p/0", "p/1"])
    overtaken, overtaking = batch.values
    one.client.due[batch.partition].append((batch.position.sequence - 1, overtaken.topic, overtaken.version))
    with pytest.raises(AssertionError, match="behind the position"):
        one.client.take(Update(overtaking.topic, overtaking.version, overtaking.event, 0))
    await one.bench.close()
