"""Nothing that was owed to a slow client is missing from the account: what was sent, and what the marks count (P2)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.messages import SharedFrame
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.types import EventId, PacketId, Version
from gateway.core.wire import codec
from gateway.core.wire.packets import Packet, SessionPacket, Update
from tests.support.machines import opened

pytestmark = pytest.mark.promise("P2")

TOPICS: Final = "abc"
PLENTY: Final = 1 << 20

topics = st.sampled_from(TOPICS)
steps = st.one_of(
    st.tuples(st.just("updates"), st.lists(topics, min_size=1, max_size=4)),
    st.tuples(st.just("snapshot"), topics),
    st.tuples(st.just("reply"), st.none()),
    st.tuples(st.just("flush"), st.sampled_from([0, 1, 60, 200, PLENTY])),
    st.tuples(st.just("at once"), topics),
    st.tuples(st.just("acknowledge"), st.none()),
    st.tuples(st.just("handed over"), st.none()),
)


class Account:
    """What was handed to a session, and what came out of it."""

    def __init__(self) -> None:
        parameters = opened().parameters
        self.machine: SessionMachine = opened(parameters=replace(parameters, resend_packets=6))
        self.versions: Counter[str] = Counter()
        self.submitted: Counter[str] = Counter()
        self.accounted: Counter[str] = Counter()
        self.last: Counter[str] = Counter()
        self.folded = 0
        self.written = 0

    def act(self, what: str, how: object) -> None:
        match what, how:
            case "updates", list(chosen):
                self.machine.submit_run(Run(tuple(self._value(topic, live=True) for topic in chosen)))
            case "snapshot", str(topic):
                self.machine.submit_run(Run.of(self._value(topic, live=False)))
            case "reply", _:
                self.machine.submit(Outgoing(None, b'"type":"reply","request":1}'))
            case "flush", int(room):
                self.take(self.machine.flush(room))
            case "at once", str(topic):
                run = Run.of(self._value(topic, live=True))
                message = self.machine.send_now(SharedFrame(run), PLENTY)
                if message is None:
                    self.machine.submit_run(run)
                else:
                    self.take([message])
            case "acknowledge", _:
                self.machine.receive_ack(PacketId(self.written), 0.0)
            case _:
                self.machine = SessionMachine.restore(self.machine.export(0.0), 0.0)

    def _value(self, topic: str, *, live: bool) -> Outgoing:
        self.versions[topic] += live or not self.versions[topic]
        self.submitted[topic] += 1
        version = self.versions[topic]
        event = EventId(f"0-1-{version}")
        value = orjson.dumps({"snapshot": True, "version": version})
        return Outgoing(topic, codec.encode_update(topic, Version(version), event, value, snapshot=not live))

    def take(self, messages: list[bytes]) -> None:
        packets: list[Packet] = [packet for message in messages for packet in codec.decode_from_server(message)]
        for packet in packets:
            assert isinstance(packet, SessionPacket)
            self.written = packet.id
            if isinstance(update := packet.body, Update):
                self.accounted[update.topic] += 1 + update.folded
                self.folded += update.folded
                last, self.last[update.topic] = self.last[update.topic], update.version
                assert update.version >= last
                # What follows what (protocol 6.4): without ``snapshot`` the mark explains the jump, exactly.
                assert update.snapshot or update.version == last + 1 + update.folded


@given(st.lists(steps, min_size=30, max_size=60))
def test_what_was_sent_and_what_the_marks_count_is_all_that_was_submitted(walk: list[tuple[str, object]]) -> None:
    account = Account()
    for what, how in walk:
        account.act(what, how)
    for _ in range(1 + sum(account.submitted.values())):
        account.act("acknowledge", None)
        account.act("flush", PLENTY)

    assert account.machine.waiting == 0
    assert account.accounted == account.submitted
    assert account.last == account.versions
    assert account.folded == account.machine.conflated


def test_the_account_has_something_to_count() -> None:
    account = Account()
    for what, how in [("updates", ["a", "a", "b"]), ("flush", 0), ("snapshot", "a"), ("flush", PLENTY)]:
        account.act(what, how)

    assert (account.folded, account.accounted) == (2, {"a": 3, "b": 1})
