"""Bodies that wait for their packet id (P9)."""

from __future__ import annotations

import orjson
import pytest

from gateway.core.stream.outbox import Outbox
from gateway.core.stream.runs import FoldedRun, Outgoing, Run, packets_of
from gateway.core.types import EventId, Version
from gateway.core.wire import codec

pytestmark = pytest.mark.promise("P9")

PLENTY = 1 << 20


def update(topic: str, text: str) -> Outgoing:
    return Outgoing(topic, text.encode())


def real(topic: str, version: int, *, snapshot: bool = False) -> Outgoing:
    event = EventId(f"0-1-{version}")
    return Outgoing(topic, codec.encode_update(topic, Version(version), event, b"1", snapshot=snapshot))


def reply(text: str) -> Outgoing:
    return Outgoing(None, text.encode())


def filled(*waiting: Outgoing) -> Outbox:
    outbox = Outbox()
    for each in waiting:
        outbox.push(Run.of(each))
    return outbox


def taken(outbox: Outbox, *, packets: int = 1, size: int = PLENTY) -> list[str]:
    return [outgoing.body.decode() for outgoing in packets_of(outbox.take(packets=packets, size=size))]


def emptied(outbox: Outbox) -> list[str]:
    return taken(outbox, packets=len(outbox))


def size(outbox: Outbox) -> int:
    return sum(len(outgoing.body) for outgoing in outbox)


def test_it_begins_empty() -> None:
    outbox = Outbox()

    assert not outbox
    assert outbox.bytes == outbox.conflated == 0
    assert not outbox.is_folded


def test_while_nothing_pushes_back_every_body_goes_out_in_order() -> None:
    outbox = filled(update("a", "a1"), reply("r"), update("a", "a2"), update("b", "b1"))

    assert emptied(outbox) == ["a1", "r", "a2", "b1"]
    assert outbox.conflated == 0


def test_nothing_can_be_taken_from_an_empty_one() -> None:
    assert Outbox().take(packets=1, size=PLENTY) == []


def test_while_nothing_pushes_back_the_shared_runs_themselves_go_out() -> None:
    """A thousand sessions hold one copy of what they are sent."""
    run = Run.of(update("a", "a1"), update("b", "b1"))
    outbox = Outbox()
    outbox.push(run)

    (out,) = outbox.take(packets=2, size=run.size)
    assert out is run


@pytest.mark.parametrize(
    ("packets", "size", "first"),
    [
        (0, PLENTY, []),
        (PLENTY, 0, []),
        (PLENTY, -1, []),
        (1, PLENTY, ["12"]),
        (PLENTY, 1, ["12"]),
        (PLENTY, 2, ["12"]),
        (PLENTY, 3, ["12", "34"]),
        (2, PLENTY, ["12", "34"]),
        (3, PLENTY, ["12", "34", "56"]),
        (PLENTY, 5, ["12", "34", "56"]),
        (4, PLENTY, ["12", "34", "56", "78"]),
        (PLENTY, 7, ["12", "34", "56", "78"]),
    ],
)
@pytest.mark.parametrize("folded", [False, True])
def test_what_is_taken_keeps_to_packets_and_begins_within_the_bytes(
    packets: int, size: int, first: list[str], folded: bool
) -> None:
    """However it was put together: runs are cut where the room ends."""
    outbox = Outbox()
    outbox.push(Run.of(update("a", "12"), update("b", "34"), update("c", "56")))
    outbox.push(Run.of(update("d", "78")))
    if folded:
        outbox.conflate()

    assert taken(outbox, packets=packets, size=size) == first
    rest = ["12", "34", "56", "78"][len(first) :]
    assert (outbox.count, outbox.bytes) == (len(rest), 2 * len(rest))
    assert [outgoing.body.decode() for outgoing in outbox] == rest
    assert emptied(outbox) == rest


def test_conflating_leaves_the_newest_update_per_topic() -> None:
    outbox = filled(update("a", "a1"), update("b", "b1"), update("a", "a2"), update("a", "a3"))
    outbox.conflate()

    assert len(outbox) == 2
    assert outbox.conflated == 2
    assert emptied(outbox) == ['"folded":2,a3', "b1"]


def test_an_update_takes_the_place_in_line_of_the_one_it_replaces() -> None:
    """Else a topic that changes all the time would never have its turn."""
    outbox = filled(update("busy", "1"), update("quiet", "q"))
    outbox.conflate()
    outbox.push(Run.of(update("busy", "2")))

    assert emptied(outbox) == ['"folded":1,2', "q"]


def test_bodies_without_a_topic_are_never_left_out() -> None:
    outbox = filled(reply("same"), reply("same"), update("a", "a1"))
    outbox.conflate()
    outbox.push(Run.of(reply("same")))

    assert emptied(outbox) == ["same", "same", "a1", "same"]
    assert outbox.conflated == 0


def test_a_topic_cannot_be_mistaken_for_a_body_without_one() -> None:
    outbox = filled(reply("r1"), update("1", "u1"), reply("r2"), update("2", "u2"))
    outbox.conflate()

    assert emptied(outbox) == ["r1", "u1", "r2", "u2"]


def test_what_took_the_place_of_a_snapshot_is_no_successor_either() -> None:
    """Else the mark would count an update, and the jump to the snapshot would be told by nothing."""
    outbox = filled(real("a", 4, snapshot=True), real("b", 1), real("a", 5), real("b", 2, snapshot=True))
    outbox.conflate()
    outbox.push(Run.of(real("a", 6)))

    sent = [orjson.loads(b"{" + outgoing.body) for outgoing in packets_of(outbox.take(packets=2, size=PLENTY))]
    assert [(each["version"], each["folded"], each["snapshot"]) for each in sent] == [(6, 2, True), (2, 1, True)]
    assert all(outgoing.body.count(b'"snapshot"') == 1 for outgoing in outbox)


def test_what_replaced_nothing_since_the_last_one_was_taken_has_no_mark() -> None:
    outbox = filled(update("a", "a1"), update("a", "a2"), update("b", "b1"))
    outbox.conflate()
    assert taken(outbox) == ['"folded":1,a2']

    outbox.push(Run.of(update("a", "a3")))
    assert emptied(outbox) == ["b1", "a3"]


def test_a_body_is_not_copied_for_its_mark() -> None:
    """What a slow session keeps for resending is what everybody has."""
    newest = update("a", "a2")
    outbox = filled(update("a", "a1"), newest)
    outbox.conflate()

    (run,) = outbox.take(packets=1, size=PLENTY)
    assert isinstance(run, FoldedRun)
    assert (run.update.body is newest.body, run.folded, run.size) == (True, 1, len(run.text))


def test_it_stays_folded_until_it_has_been_emptied() -> None:
    outbox = filled(update("a", "a1"), update("b", "b1"))
    outbox.conflate()
    assert taken(outbox) == ["a1"]

    outbox.push(Run.of(update("b", "b2")))
    assert (outbox.is_folded, outbox.conflated) == (True, 1)
    assert emptied(outbox) == ['"folded":1,b2']
    assert (outbox.is_folded, outbox.conflated) == (False, 1)

    outbox.push(Run.of(update("a", "a2")))
    outbox.push(Run.of(update("a", "a3")))
    assert emptied(outbox) == ["a2", "a3"]


def test_conflating_an_empty_one_does_not_fold_what_comes() -> None:
    outbox = Outbox()
    outbox.conflate()
    outbox.push(Run.of(update("a", "a1")))
    outbox.push(Run.of(update("a", "a2")))

    assert emptied(outbox) == ["a1", "a2"]


def test_conflating_twice_is_like_conflating_once() -> None:
    outbox = filled(update("a", "a1"), update("a", "a2"))
    outbox.conflate()
    outbox.push(Run.of(update("b", "b1")))
    outbox.conflate()

    assert outbox.conflated == 1
    assert emptied(outbox) == ['"folded":1,a2', "b1"]


def test_it_can_be_looked_through_in_the_order_in_which_it_will_go_out() -> None:
    outbox = filled(update("a", "a1"), update("b", "b1"), update("a", "a2"))
    assert [outgoing.body for outgoing in outbox] == [b"a1", b"b1", b"a2"]

    outbox.conflate()

    assert [outgoing.body for outgoing in outbox] == [b"a2", b"b1"]


def test_bytes_are_those_of_the_bodies_that_wait() -> None:
    outbox = filled(update("a", "long update"), update("a", "short"), reply("r"))
    assert outbox.bytes == size(outbox)

    outbox.conflate()
    assert outbox.bytes == size(outbox) == len("short") + len("r")

    outbox.push(Run.of(update("a", "a longer update again")))
    assert outbox.bytes == size(outbox)

    emptied(outbox)
    assert outbox.bytes == 0


def test_clearing_tells_how_many_were_dropped() -> None:
    outbox = filled(update("a", "a1"), reply("r"))
    assert outbox.clear() == 2

    outbox.push(Run.of(update("a", "a1")))
    outbox.push(Run.of(update("a", "a2")))
    outbox.conflate()
    assert outbox.clear() == 1

    assert not outbox
    assert outbox.bytes == 0
    assert not outbox.is_folded


# --- Bounds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("packets", "octets", "exceeded"), [(2, 10, False), (1, 10, True), (2, 3, True), (2, 4, False)]
)
def test_bounds_are_exceeded_by_packets_or_by_bytes(packets: int, octets: int, exceeded: bool) -> None:
    outbox = filled(reply("ab"), reply("cd"))

    assert outbox.exceeds(packets=packets, size=octets) is exceeded
