"""What the packets of one connection are charged to."""

from __future__ import annotations

import pytest

from gateway.app.session.meter import Meter
from gateway.core.pacing.rates import TokenBucket
from gateway.core.wire import codec

RATE = 10.0
"""Packets, or bytes, a second; as many may come at once."""


def bucket(rate: float = RATE) -> TokenBucket:
    return TokenBucket(rate, rate)


@pytest.mark.parametrize(
    ("message", "cost"),
    [
        (b"[]", 1),
        (b" [ ] ", 1),
        (b'{"type":"ping"}', 1),
        (b'[{"type":"ping"}]', 1),
        (b'[{"type":"ping"},{"type":"ping"},{"type":"ping"}]', 3),
    ],
)
def test_every_message_costs_a_packet_for_each_that_it_holds_and_one_if_it_holds_none(
    message: bytes, cost: int
) -> None:
    meter = Meter([(bucket(), "rate_packets")], ())
    packets = codec.decode_from_client(message)
    for _ in range(int(RATE) // cost):
        assert meter.charge(0.0, packets) == 0

    assert meter.charge(0.0, packets) == pytest.approx((cost * (RATE // cost + 1) - RATE) / RATE)


def test_the_longest_pause_is_that_of_the_limit_that_is_exceeded_most() -> None:
    slow, fast = bucket(1.0), bucket(100.0)
    packets = codec.decode_from_client(b'{"type":"ping"}')
    meter = Meter([(fast, "rate_packets"), (slow, "rate_node_packets")], (), [(bucket(10.0), "rate_bytes")])

    assert meter.charge(0.0, packets) == 0
    assert meter.charge(0.0, packets) == pytest.approx(1.0)
    assert meter.exceeded(0.0) == "rate_node_packets"
    meter.read += 40
    assert meter.charge_read(0.0) == pytest.approx(3.0)
    assert meter.exceeded(0.0) == "rate_bytes"
    assert meter.read == 0, "what was read is charged once"


def test_what_is_not_limited_costs_nothing() -> None:
    meter = Meter((), ())
    meter.read += 1_000_000

    assert meter.charge(0.0, codec.decode_from_client(b"[]")) == 0
    assert meter.packets(0.0, 1e9) == 0
