"""The checks of the load test see what they are for: going back, doubles, damage, and holes that nobody declared."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest

from gateway.core.types import EventId, JsonValue, Version
from gateway.core.wire.codes import Numbering
from gateway.core.wire.packets import Update
from loadtests.integrity import PublicationWatch, SubscriptionWatch
from loadtests.pacing import Pacing
from loadtests.payload import Sample, decode, encode
from loadtests.tally import Tally

WALL = 1_800_000_000.0


class Seen:
    """A subscription, fed by hand."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.violations: list[str] = []
        self.watch = SubscriptionWatch(self.tally, self.violations.append, now=0.0)
        self.now = 0.0

    def update(
        self,
        version: int,
        sequence: int | None = None,
        *,
        snapshot: bool = False,
        folded: int = 0,
        source: str = "s",
        late: float = 0.0,
    ) -> float | None:
        sequence = version if sequence is None else sequence
        value = orjson.loads(encode(Sample(source, sequence, WALL - late)))
        return self.raw(version, value, snapshot=snapshot, folded=folded)

    def raw(self, version: int, value: JsonValue, *, snapshot: bool = False, folded: int = 0) -> float | None:
        self.now += 1.0
        update = Update("load/1", Version(version), EventId("0-1-1"), value, snapshot, folded=folded)
        return self.watch.updated(update, self.now, WALL)


@pytest.fixture
def seen() -> Seen:
    return Seen()


def test_a_value_has_its_size_and_survives_the_journey() -> None:
    sample = Sample("a1b2", 17, WALL)
    text = encode(sample, size=100)
    assert len(text) == 100
    assert decode(orjson.loads(text)) == sample
    assert len(encode(sample, size=1)) > 1


def test_foreign_values_are_none_of_ours() -> None:
    foreign: list[JsonValue] = [None, 7, {"bid": 1}, {"source": "s", "sequence": "1", "due": 1.0, "filler": ""}]
    assert [decode(value) for value in foreign] == [None] * 4


def test_latency_counts_from_when_a_value_was_due(seen: Seen) -> None:
    assert seen.update(1, late=0.25) == pytest.approx(0.25, abs=1e-5)
    assert seen.tally.fresh == seen.tally.owed == seen.tally.updates == 1


def test_the_snapshot_after_subscribing_tells_nothing_about_latency(seen: Seen) -> None:
    assert seen.update(40, snapshot=True, late=3600.0) is None
    assert seen.update(41, late=0.5) == pytest.approx(0.5, abs=1e-5)
    assert seen.violations == []


def test_successors_are_fine(seen: Seen) -> None:
    for version in (1, 2, 3):
        seen.update(version)
    seen.watch.finish(10.0)
    assert seen.violations == []
    assert (seen.tally.fresh, seen.tally.owed, seen.tally.undeclared) == (3, 3, 0)


@pytest.mark.parametrize(
    ("act", "violation"),
    [
        (lambda seen: seen.update(1), "a version of load/1 went from 2 to 1"),
        (lambda seen: seen.update(2), "a version of load/1 went from 2 to 2"),
        (lambda seen: seen.update(2, 3, snapshot=True), "came with two contents"),
        (lambda seen: seen.update(3, 2), "it was published twice"),
        (lambda seen: seen.update(3, late=-1.0), "the clocks of the generating machines differ"),
    ],
)
def test_what_must_not_be_is_a_violation(seen: Seen, act: Callable[[Seen], object], violation: str) -> None:
    seen.update(2)
    act(seen)
    assert len(seen.violations) == 1
    assert violation in seen.violations[0]


def test_a_damaged_content_is_a_violation(seen: Seen) -> None:
    value = orjson.loads(encode(Sample("s", 1, WALL)))
    seen.raw(1, value | {"filler": value["filler"][:-1] + "x"})
    assert seen.violations == ["the content of an update of load/1 is damaged"]


@pytest.mark.parametrize(("folded", "undeclared"), [(2, 0), (1, 1), (0, 2), (3, 0)])
def test_a_hole_is_a_violation_unless_the_update_says_that_it_took_their_place(
    seen: Seen, folded: int, undeclared: int
) -> None:
    seen.update(1)
    seen.update(4, folded=folded)
    assert (seen.tally.declared_folded, seen.tally.replaced, seen.tally.undeclared) == (
        folded,
        2 - undeclared,
        undeclared,
    )
    assert [f"missed {undeclared} updates" in violation for violation in seen.violations] == [True] * bool(undeclared)


def test_a_failover_lets_one_snapshot_per_topic_skip_values(seen: Seen) -> None:
    seen.update(1)
    seen.watch.recovered(Numbering.RESTARTED, replayed=False)
    assert seen.update(5, snapshot=True, late=0.1) is not None
    assert (seen.tally.replaced, seen.tally.fresh, seen.tally.owed) == (3, 2, 5)
    seen.update(7, snapshot=True)
    seen.watch.finish(10.0)
    assert seen.tally.undeclared == 1


def test_a_reattach_excuses_no_hole(seen: Seen) -> None:
    seen.update(1)
    seen.watch.recovered(Numbering.KEPT, replayed=False)
    seen.update(3)
    seen.watch.finish(10.0)
    assert seen.tally.undeclared == 1


@pytest.mark.parametrize("snapshot", [True, False])
def test_a_replay_excuses_no_hole(seen: Seen, *, snapshot: bool) -> None:
    seen.update(1)
    seen.watch.recovered(Numbering.RESTARTED, replayed=True)
    for number in (2, 3, 5):
        seen.update(number, snapshot=snapshot)
    seen.watch.finish(10.0)
    assert (seen.tally.undeclared, len(seen.violations)) == (1, 1)


def test_a_failover_without_a_snapshot_flag_excuses_nothing(seen: Seen) -> None:
    seen.update(1)
    seen.watch.recovered(Numbering.RESTARTED, replayed=False)
    seen.update(3)
    seen.watch.finish(10.0)
    assert seen.tally.undeclared == 1


def test_a_notice_lets_values_be_replaced(seen: Seen) -> None:
    seen.update(1)
    seen.watch.noticed()
    seen.update(9, snapshot=True)
    seen.watch.finish(10.0)
    assert (seen.tally.replaced, seen.violations) == (7, [])


def test_a_new_run_of_a_publisher_begins_its_own_sequence(seen: Seen) -> None:
    seen.update(8, 8)
    assert seen.update(9, 1, source="next") is not None
    seen.watch.finish(10.0)
    assert seen.violations == []


def test_silence_is_measured_also_to_the_end(seen: Seen) -> None:
    seen.update(1)
    seen.watch.finish(8.5)
    assert seen.tally.longest_silence == 7.5
    assert seen.tally.subscribed_seconds == 8.5


def test_who_hears_nothing_at_all_is_silent_all_the_time(seen: Seen) -> None:
    seen.watch.finish(60.0)
    seen.watch.finish(90.0)
    assert seen.tally.longest_silence == seen.tally.subscribed_seconds == 60.0
    assert seen.update(1) is None


@pytest.mark.parametrize(
    ("receipts", "violation"),
    [
        ([(1, 11), (2, 12), (4, 14), (3, 13)], None),
        ([(1, 11), (2, None), (3, 13)], None),
        ([(1, 11), (2, 13)], "one was executed twice"),
        ([(1, 11), (2, 11)], "one was confirmed and not executed"),
    ],
)
def test_each_publish_makes_one_version(receipts: list[tuple[int, int | None]], violation: str | None) -> None:
    violations: list[str] = []
    watch = PublicationWatch(violations.append)
    for sequence, version in receipts:
        watch.confirmed(sequence, version)
    assert len(violations) == (violation is not None)
    assert violation is None or violation in violations[0]


def test_versions_may_jump_after_a_disturbance() -> None:
    violations: list[str] = []
    watch = PublicationWatch(violations.append)
    watch.confirmed(1, 11)
    watch.disturbed()
    watch.confirmed(2, 40)
    assert violations == []


def test_who_was_held_up_makes_up_for_it_with_the_old_due_times() -> None:
    pacing = Pacing(start=10.0, interval=0.5)
    assert pacing.due(9.0) == []
    assert pacing.due(10.0) == [10.0]
    assert pacing.due(12.1) == [10.5, 11.0, 11.5, 12.0]
    assert pacing.next_due == 12.5
    with pytest.raises(ValueError, match="above 0 s"):
        Pacing(0.0, 0.0)
