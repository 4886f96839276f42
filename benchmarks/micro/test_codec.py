"""The packets that pass by the million: read from clients and written to them."""

# ruff: noqa: D103, S101 - names tell what is measured; results are checked as in tests

from __future__ import annotations

from typing import Final

import orjson
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.storm import values
from gateway.core.types import EventId, NodeId, PacketId, RequestNumber, SessionId, Version
from gateway.core.wire import codec
from gateway.core.wire.codes import Numbering, Outcome
from gateway.core.wire.packets import Ack, Backoff, Limits, LinkPacket, Ping, Pong, Reply, Welcome

LIKE_A_TOKEN: Final = f"{'p' * 62}.{'s' * 43}"
VALUE: Final = values.make(123_456, 1_795_249_200_123_456_789)
FROM_CLIENT: Final = {
    "ack": {"type": "ack", "received": 123_456},
    "pong": {"type": "pong", "received": 123_456},
    "resume": {"type": "resume", "token": LIKE_A_TOKEN, "attempt": 3, "received": 123_456, "oldest": 17},
    "hello": {"type": "hello", "principal": "alice", "client": "storm/1"},
    "subscribe": {"id": 1, "type": "subscribe", "request": 1, "selector": "market/17"},
    "publish": {"id": 9, "received": 40, "type": "publish", "request": 9, "topic": "market/17", "value": VALUE},
}
WELCOME: Final = Welcome(
    session=SessionId("s-4f1cabcdef012345"),
    principal="alice",
    node=NodeId("n1"),
    token=LIKE_A_TOKEN,
    outcome=Outcome.FAILED_OVER,
    numbering=Numbering.RESTARTED,
    lost=None,
    conflated=None,
    window=60.0,
    ping_interval=20.0,
    ping_timeout=45.0,
    replicated=True,
    limits=Limits(
        message_bytes=65_536,
        value_bytes=32_768,
        requests=256,
        selections=1_000,
        resend_packets=1_024,
        resend_bytes=1_048_576,
    ),
    backoff=Backoff(initial=0.25, maximum=10.0, stable_after=10.0),
    properties={"$session": "s-4f1cabcdef012345", "$principal": "alice", "$node": "n1", "$client": "storm/1"},
    selections=("+market/17", "+desk/17/*", "+account/17"),
)
LINK_PACKETS: Final[dict[str, LinkPacket]] = {
    "ack": Ack(PacketId(123_456)),
    "ping": Ping(),
    "pong": Pong(PacketId(123_456)),
    "welcome": WELCOME,
}


@pytest.mark.parametrize("kind", FROM_CLIENT)
def test_decode_from_client(benchmark: BenchmarkFixture, kind: str) -> None:
    packets = benchmark(codec.decode_from_client, orjson.dumps(FROM_CLIENT[kind]))
    assert len(packets) == 1


@pytest.mark.parametrize("kind", LINK_PACKETS)
def test_encode_link(benchmark: BenchmarkFixture, kind: str) -> None:
    assert orjson.loads(benchmark(codec.encode_link, LINK_PACKETS[kind]))["type"] == kind


def test_encode_update(benchmark: BenchmarkFixture) -> None:
    value = orjson.dumps(VALUE)
    body = benchmark(codec.encode_update, "market/17", Version(8), EventId("25-1-8"), value, snapshot=False)
    assert body.endswith(b"}")


def test_encode_reply(benchmark: BenchmarkFixture) -> None:
    reply = Reply(request=RequestNumber(9), version=Version(8), event=EventId("25-1-8"))
    assert benchmark(codec.encode_reply, reply).endswith(b"}")
