"""The reader of topics with history, by itself: every event once, in order, however pages and updates come (P14)."""

from __future__ import annotations

import random

import pytest

from gateway.core.client.errors import InvalidPosition
from gateway.core.client.log_reader import LogReader, parse_position
from gateway.core.client.types import Update
from gateway.core.types import EventId, Version
from gateway.core.wire.packets import HistoryPart
from gateway.core.wire.packets import Update as Packet

pytestmark = pytest.mark.promise("P14")


def event(number: int, partition: int = 17) -> EventId:
    return EventId(f"{partition}-1-{number}")


def live(number: int, *, snapshot: bool = False, folded: int = 0) -> Update:
    return Update("log/a", number, number, event(number), snapshot, folded=folded)


def part(*numbers: int, upto: int, complete: bool = True, gap: bool = False) -> HistoryPart:
    events = tuple(Packet("log/a", Version(each), event(each), each) for each in numbers)
    return HistoryPart(events=events, positions={17: event(upto)}, complete=complete, gap=gap, missing=("log/a",))


def reader(start: str = "earliest", size: int = 100) -> LogReader:
    return LogReader(start, size=size, octets=10_000)


def is_live(read: LogReader) -> bool:
    return read.is_live


def waits(read: LogReader) -> bool:
    return read.is_waiting


def had(read: LogReader) -> list[object]:
    values = []
    while len(read):
        read.consume()
        values.append(read.take().value)
    read.consume()
    return values


def test_pages_come_first_and_what_came_live_meanwhile_follows() -> None:
    read = reader()
    read.offer(live(3), 1)
    read.offer(live(4), 1)
    read.answered(part(1, 2, upto=2, complete=False), holds=True)
    assert not is_live(read)
    read.answered(part(3, upto=3), holds=True)
    read.offer(live(5), 1)
    assert is_live(read)
    assert had(read) == [1, 2, 3, 4, 5]
    assert read.position == event(5)
    assert read.bytes == 0


def test_what_was_read_is_not_handed_out_again() -> None:
    read = reader(event(2))
    for number in (1, 2):
        read.offer(live(number), 1)
    read.answered(part(2, 3, upto=4), holds=True)
    for number in (3, 4, 5, 5):
        read.offer(live(number), 1)
    assert had(read) == [3, 5]


@pytest.mark.parametrize("hint", [live(7, snapshot=True), live(7, folded=2)])
def test_an_update_that_is_not_the_next_event_is_read_from_the_history(hint: Update) -> None:
    read = reader(event(4))
    read.answered(part(upto=4), holds=True)
    read.offer(live(5), 1)
    read.offer(hint, 1)
    assert not is_live(read)
    read.offer(live(8), 1)
    assert had(read) == [5]
    assert read.after == {17: event(5)}
    # A page that ends before the hint does not do.
    read.answered(part(6, upto=6), holds=True)
    assert not is_live(read)
    read.answered(part(7, upto=7), holds=True)
    assert is_live(read)
    assert had(read) == [6, 7, 8]


def test_what_finds_no_room_is_read_later() -> None:
    read = reader(event(0), size=2)
    read.answered(part(upto=0), holds=True)
    for number in range(1, 10):
        read.offer(live(number), 1)
    assert len(read) == 2
    assert had(read) == [1, 2]
    read.answered(part(3, 4, 5, 6, 7, 8, 9, upto=9), holds=True)
    read.offer(live(10), 1)
    assert had(read) == [3, 4, 5, 6, 7, 8, 9, *([10] if read.is_live else [])]
    if not read.is_live:
        read.answered(part(10, upto=10), holds=True)
        assert had(read) == [10]


def test_live_is_what_follows_a_page_that_holds() -> None:
    """Current values have yet to come: an update may be ahead of one that comes as a snapshot."""
    read = reader(event(0))
    read.answered(part(1, upto=1), holds=False)
    assert not is_live(read)
    assert waits(read)
    read.offer(live(3), 1)
    assert not waits(read)
    read.answered(part(2, 3, upto=3), holds=True)
    assert had(read) == [1, 2, 3]
    read.interrupt()
    read.offer(live(5), 1)
    read.answered(part(4, 5, upto=5), holds=True)
    assert had(read) == [4, 5]


def test_what_came_while_a_page_was_under_way_is_asked_for() -> None:
    """Found by chaos: the last event of a topic waited at the client for another one that never came."""
    read = reader(event(0))
    read.offer(live(2), 1)
    read.answered(part(1, upto=1), holds=False)
    assert not is_live(read)
    assert not waits(read)
    read.answered(part(2, upto=2), holds=False)
    assert waits(read)
    assert had(read) == [1, 2]


def test_a_gap_is_told_by_the_first_update_that_follows_it() -> None:
    read = reader(event(1))
    read.answered(part(upto=4, gap=True), holds=True)
    read.offer(live(5), 1)
    read.offer(live(6), 1)
    assert [(read.take().gap, read.take().gap)] == [(True, False)]


def test_a_position_is_what_the_application_is_done_with() -> None:
    read = reader(event(1))
    read.answered(part(2, 3, upto=9), holds=True)
    read.consume()
    assert read.position == event(1)
    read.take()
    assert read.position == event(1)
    read.consume()
    assert read.position == event(2)
    read.take()
    read.consume()
    assert read.position == event(9), "nothing between was for this stream"


def test_positions_of_several_partitions() -> None:
    text = "3-1-5,17-2-88"
    assert parse_position(text) == {3: "3-1-5", 17: "17-2-88"}
    assert reader(text).position == text
    for wrong in ("", "x", "3", "3-1", "3-1-5,3-1-6", "64-1-1", "03-1-1", "3-1-x", ","):
        with pytest.raises(InvalidPosition):
            parse_position(wrong)


def test_any_server_that_tells_the_truth() -> None:
    """Whatever is folded, skipped, interrupted or sent twice: the log, each once, in order."""
    for seed in range(300):
        chance = random.Random(seed)
        read = reader(event(0), size=chance.choice((1, 3, 50)))
        published = sent = 0
        out: list[object] = []
        while len(out) < 60:
            published += chance.randint(0, 3)
            step = chance.random()
            if step < 0.45 and sent < published:
                # In order; or the newest takes the place of some.
                sent = sent + 1 if chance.random() < 0.8 else published
                if chance.random() < 0.8:
                    read.offer(live(sent, folded=0 if _follows(read, sent) else 1), 1)
                else:
                    read.interrupt()  # the connection is lost, and all that was sent with it
            elif step < 0.8 and not read.is_live:
                after = int(read.after[17].split("-")[2])
                end = min(published, after + chance.randint(1, 5))
                sent = max(sent, end)
                complete = end == published
                read.answered(
                    part(*range(after + 1, end + 1), upto=end, complete=complete), holds=chance.random() < 0.7
                )
            elif len(read):
                read.consume()
                out.append(read.take().value)
        assert out == list(range(1, 61)), seed


def _follows(read: LogReader, number: int) -> bool:
    """Tell whether a server would send an update without a mark: it has sent all before it."""
    newest = max([int(read.after[17].split("-")[2]), *(each[0].version for each in read._later)])
    return number == newest + 1
