"""Packets sent and not yet acknowledged (protocol 5.3, 5.4)."""

from __future__ import annotations

import pytest

from gateway.core.stream.resend import ResendBuffer
from gateway.core.stream.runs import Outgoing, Run, packets_of
from gateway.core.types import PacketId
from gateway.core.wire.errors import LocalProtocolError, RemoteProtocolError


def packet(text: str) -> Outgoing:
    return Outgoing(None, text.encode())


def filled(*bodies: str, packets: int = 10, size: int = 1000, next_id: int = 1) -> ResendBuffer:
    buffer = ResendBuffer(packets=packets, size=size, next_id=PacketId(next_id))
    for body in bodies:
        buffer.append(Run.of(packet(body)))
    return buffer


def test_packets_are_numbered_from_one_without_a_hole() -> None:
    buffer = ResendBuffer(packets=3, size=100)

    buffer.append(Run.of(packet("a")))
    assert buffer.next == 2
    buffer.append(Run.of(packet("b"), packet("c")))
    assert buffer.next == 4
    assert buffer.oldest == 1


def test_numbering_can_begin_elsewhere() -> None:
    buffer = filled("a", "b", next_id=41)

    assert buffer.oldest == 41
    assert buffer.next == 43


def test_an_empty_buffer_says_that_its_oldest_is_the_next() -> None:
    assert filled(next_id=7).oldest == 7


def test_it_knows_what_it_holds() -> None:
    buffer = filled("a", "bcd")

    assert len(buffer) == 2
    assert buffer.bytes == 4
    assert list(buffer) == [packet("a"), packet("bcd")]


def test_it_holds_the_same_object_and_not_a_copy() -> None:
    shared = Run.of(packet("shared"), packet("by all"))
    buffer = ResendBuffer(packets=3, size=100)
    buffer.append(shared)

    assert next(iter(buffer.after(PacketId(0)))) is shared


@pytest.mark.parametrize(
    ("bodies", "packets", "size", "full"),
    [
        ([], 1, 1, False),
        (["a"], 2, 100, False),
        (["a", "b"], 2, 100, True),
        (["abc"], 10, 4, False),
        (["abcd"], 10, 4, True),
        (["abcdef"], 10, 4, True),
    ],
)
def test_it_is_full_by_packets_or_by_bytes(bodies: list[str], packets: int, size: int, full: bool) -> None:
    assert filled(*bodies, packets=packets, size=size).full is full


def test_a_packet_larger_than_the_bound_can_still_be_sent_alone() -> None:
    buffer = filled(size=3)
    buffer.append(Run.of(packet("larger than three")))

    assert len(buffer) == 1


def test_numbering_stops_when_it_is_full() -> None:
    buffer = filled("a", "b", packets=2)

    with pytest.raises(LocalProtocolError, match="full"):
        buffer.append(Run.of(packet("c")))
    assert buffer.next == 3


def test_an_acknowledgement_makes_room() -> None:
    buffer = filled("aa", "b", "c", packets=3)
    buffer.acknowledge(PacketId(2))

    assert list(buffer) == [packet("c")]
    assert buffer.bytes == 1
    assert buffer.oldest == 3
    buffer.append(Run.of(packet("d")))
    assert buffer.next == 5


def test_an_old_acknowledgement_changes_nothing() -> None:
    buffer = filled("a", "b", "c")
    buffer.acknowledge(PacketId(2))
    buffer.acknowledge(PacketId(1))
    buffer.acknowledge(PacketId(0))

    assert buffer.oldest == 3
    assert buffer.bytes == 1


def test_everything_can_be_acknowledged() -> None:
    buffer = filled("a", "b")
    buffer.acknowledge(PacketId(2))

    assert len(buffer) == buffer.bytes == 0
    assert buffer.oldest == buffer.next == 3


@pytest.mark.parametrize("received", [3, 4, 2**53 - 1])
def test_what_was_never_sent_cannot_be_acknowledged(received: int) -> None:
    buffer = filled("a", "b")

    with pytest.raises(RemoteProtocolError, match=f"packet {received} is acknowledged, but 2 is the last"):
        buffer.acknowledge(PacketId(received))
    assert len(buffer) == 2


@pytest.mark.parametrize(
    ("received", "covered"),
    [(39, False), (40, True), (42, True), (44, True), (45, False)],
)
def test_it_covers_a_peer_whose_next_packet_it_holds_or_will_number(received: int, covered: bool) -> None:
    """The drawing in the module: 41 to 44 are kept, 45 is next."""
    buffer = filled("a", "b", "c", "d", next_id=41)

    assert buffer.covers(PacketId(received)) is covered


@pytest.mark.parametrize(
    ("received", "ids"),
    [(0, [41, 42, 43]), (40, [41, 42, 43]), (41, [42, 43]), (43, []), (99, [])],
)
def test_it_yields_what_comes_after_an_id(received: int, ids: list[int]) -> None:
    buffer = filled("a", "b", "c", next_id=41)
    bodies = {41: packet("a"), 42: packet("b"), 43: packet("c")}

    assert packets_of(buffer.after(PacketId(received))) == [bodies[each] for each in ids]


def test_bounds_can_change_and_what_is_kept_stays() -> None:
    buffer = filled("a", "b", "c")
    buffer.bound(packets=2, size=100)

    assert buffer.full
    assert len(buffer) == 3

    buffer.bound(packets=4, size=100)

    assert not buffer.full


def test_it_can_be_made_from_what_another_one_held() -> None:
    original = filled("a", "bc", next_id=7)
    kept = tuple(original.after(PacketId(0)))
    copy = ResendBuffer.holding(kept, packets=10, size=1000, next_id=original.next)

    assert list(copy) == list(original)
    assert (copy.next, copy.oldest, copy.bytes) == (original.next, original.oldest, original.bytes)


# --- Runs ---------------------------------------------------------------------------------------------------------


def buffer_of_runs() -> ResendBuffer:
    """Packets 1 to 7 in runs of one to four, of lengths that tell them apart."""
    buffer = ResendBuffer(packets=10, size=1000)
    buffer.append(Run.of(packet("a"), packet("bb")))
    buffer.append(Run.of(packet("ccc"), packet("dddd"), packet("eeeee"), packet("ffffff")))
    buffer.append(Run.of(packet("ggggggg")))
    return buffer


@pytest.mark.parametrize("first", range(8))
@pytest.mark.parametrize("second", range(8))
def test_a_run_may_be_acknowledged_in_parts(first: int, second: int) -> None:
    buffer = buffer_of_runs()
    buffer.acknowledge(PacketId(first))
    buffer.acknowledge(PacketId(second))

    received = max(first, second)
    bodies = [outgoing.body for outgoing in buffer]
    assert [len(body) for body in bodies] == list(range(received + 1, 8))
    assert (buffer.count, buffer.bytes) == (len(bodies), sum(map(len, bodies)))
    assert buffer.oldest == received + 1


@pytest.mark.parametrize("acknowledged", range(8))
@pytest.mark.parametrize("received", range(8))
def test_what_comes_after_an_id_may_begin_within_a_run(acknowledged: int, received: int) -> None:
    buffer = buffer_of_runs()
    buffer.acknowledge(PacketId(acknowledged))

    following = packets_of(buffer.after(PacketId(received)))
    assert [len(outgoing.body) for outgoing in following] == list(range(max(acknowledged, received) + 1, 8))


def test_a_run_that_does_not_fit_as_a_whole_is_refused_as_a_whole() -> None:
    buffer = filled("a", packets=2)

    with pytest.raises(LocalProtocolError, match="full"):
        buffer.append(Run.of(packet("b"), packet("c")))
    assert buffer.next == 2
