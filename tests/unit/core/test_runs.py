"""What is sent to many sessions, as one object (protocol 5.1)."""

from __future__ import annotations

import pytest

from gateway.core.stream.messages import SharedFrame, compose
from gateway.core.stream.runs import Outgoing, Run, packets_of
from gateway.core.types import PacketId
from gateway.core.wire import codec
from gateway.core.wire.packets import Notice, Ping, SessionPacket


def notice(text: str) -> Outgoing:
    return Outgoing(None, codec.encode_notice(Notice("n", text)))


BODIES = tuple(notice("x" * length) for length in range(5))


def test_a_single_body_is_the_text_itself_and_not_a_copy() -> None:
    assert Run.of(BODIES[0]).text is BODIES[0].body


def test_a_run_can_be_taken_apart_again() -> None:
    run = Run(BODIES)

    assert run.packets == BODIES
    assert run.packets is run.packets, "sessions share them"
    assert (run.count, run.size) == (5, sum(len(packet.body) for packet in BODIES))


@pytest.mark.parametrize("at", range(1, 5))
def test_cutting_changes_nothing_but_the_number_of_runs(at: int) -> None:
    head, rest = Run(BODIES).split(at)

    assert (head.count, rest.count) == (at, 5 - at)
    assert tuple(packets_of([head, rest])) == BODIES
    assert head.size == Run(BODIES).first_bytes(at)


@pytest.mark.parametrize("limit", [1, 80, 100, 150, 200, 10_000])
@pytest.mark.parametrize("cuts", [[5], [1, 4], [2, 1, 2], [1, 1, 1, 1, 1]])
@pytest.mark.parametrize("links", [0, 1])
def test_however_packets_are_grouped_the_messages_say_the_same(limit: int, cuts: list[int], links: int) -> None:
    ping = codec.encode_link(Ping())
    runs, start = [], 0
    for count in cuts:
        runs.append(Run(BODIES[start : start + count]))
        start += count

    messages = compose([ping] * links, PacketId(7), PacketId(3), runs, [ping] * links, limit=limit)

    packets = [packet for message in messages for packet in codec.decode_from_server(message)]
    numbered = [packet for packet in packets if isinstance(packet, SessionPacket)]
    assert packets == [*[Ping()] * links, *numbered, *[Ping()] * links]
    assert [packet.id for packet in numbered] == [7, 8, 9, 10, 11]
    assert [packet.received for packet in numbered] == [3, None, None, None, None]
    assert [packet.body for packet in numbered] == [Notice("n", "x" * length) for length in range(5)]
    for message in messages:
        assert len(message) <= limit or len(codec.decode_from_server(message)) == 1


@pytest.mark.parametrize("run", [Run.of(BODIES[0]), Run(BODIES)])
def test_sessions_with_the_same_numbers_share_the_message_itself(run: Run) -> None:
    copies = SharedFrame(run)

    def composed(first: int, received: int | None) -> bytes:
        packet_id = None if received is None else PacketId(received)
        (message,) = compose((), PacketId(first), packet_id, [run], (), limit=1_000)
        return message

    shared = copies.message(PacketId(7), None)
    assert shared == composed(7, None)
    assert copies.message(PacketId(7), PacketId(3)) == composed(7, 3), "an acknowledgement is one session's alone"
    assert copies.message(PacketId(7), None) is shared
    assert copies.message(PacketId(8), None) == composed(8, None)
    assert copies.message(PacketId(7), None) == shared
