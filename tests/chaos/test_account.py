"""The account finds what it is there to find: histories with each kind of violation, and the same without it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from tests.chaos.account.account import Account
from tests.chaos.account.clock import LASTS, Off, Told, judge_clock, judge_shifts, read_starts, read_told
from tests.chaos.account.folds import Welcome
from tests.chaos.account.forgotten import Forgotten, NodeEnd
from tests.chaos.account.publishes import Entry, Publishes, Snapshot
from tests.chaos.account.remains import (
    LOUD,
    MOST_CONNECTIONS,
    Key,
    judge_connections,
    judge_keys,
    judge_log,
)
from tests.chaos.account.sessions import Identity, Sessions
from tests.chaos.account.updates import NEAR, SessionUpdates
from tests.chaos.account.violation import Violation, generation_of

SECOND = 1 << 32
"""Added to versions of the second generation."""


def promises(violations: list[Violation]) -> list[str]:
    return [violation.promise for violation in violations]


def seen(*updates: tuple[int, int, bool]) -> SessionUpdates:
    """What a session saw of a topic, a second each: value, version, snapshot."""
    account = SessionUpdates("watcher")
    for at, (value, version, snapshot) in enumerate(updates):
        account.update(float(at), "t/1", value, version, snapshot=snapshot)
    return account


# --- Updates ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("updates", "expected"),
    [
        pytest.param([(1, 1, True), (2, 2, False), (3, 3, False)], [], id="one after the other"),
        pytest.param([(1, 1, True), (5, 5, True)], [], id="a snapshot declares what it skips"),
        pytest.param([(1, 1, True), (1, 1, True)], [], id="the same value as a snapshot"),
        pytest.param([(1, 1, True), (3, 2, False)], [], id="a publish that was never executed"),
        pytest.param([(1, 1, True), (2, SECOND + 1, False)], [], id="the next generation goes on"),
        pytest.param([(1, 1, True), (1, 1, False)], ["P2"], id="delivered twice"),
        pytest.param([(2, 2, True), (1, 1, True)], ["P6"], id="went back"),
        pytest.param([(2, 2, True), (1, 1, False), (3, 3, False)], ["P6"], id="went back and on"),
        pytest.param([(1, 1, True), (2, 1, True)], ["P6"], id="one version with two values"),
        pytest.param([(2, 2, True), (1, 3, False)], ["P5"], id="an old value with a new version"),
        pytest.param([(2, 2, True), (2, SECOND + 1, False)], ["P5"], id="one value published twice"),
        pytest.param([(1, 1, True), (3, 3, False)], ["P2"], id="a hole"),
        pytest.param([(1, 1, True), (3, SECOND + 1, False)], ["P2"], id="a hole between generations"),
    ],
)
def test_what_a_session_sees_of_a_topic(updates: list[tuple[int, int, bool]], expected: list[str]) -> None:
    account = seen(*updates)
    account.finish()
    assert promises(account.violations) == expected


@pytest.mark.parametrize(
    ("snapshot", "version", "notice", "expected"),
    [
        pytest.param(True, SECOND, 2.5, [], id="declared"),
        pytest.param(True, SECOND, None, ["P5"], id="declared by nothing"),
        pytest.param(True, SECOND, 200.0, ["P5"], id="declared much later"),
        pytest.param(False, SECOND, 2.5, ["P5"], id="no snapshot"),
        pytest.param(True, 4, 2.5, ["P5"], id="the same generation"),
    ],
)
def test_a_generation_may_begin_with_an_older_value(
    snapshot: bool, version: int, notice: float | None, expected: list[str]
) -> None:
    account = seen((3, 3, True))
    account.update(2.0, "t/1", 1, version, snapshot=snapshot)
    if notice is not None:
        account.notice(notice, "grid_lost_writes")
    account.finish()
    assert promises(account.violations) == expected


def test_versions_of_a_topic_that_began_in_a_later_generation_count_though_a_publish_was_refused() -> None:
    for folded, expected in ((99, []), (100, []), (98, ["P2"])):
        account = SessionUpdates("watcher")
        account.update(1.0, "t/1", 101, SECOND + 100, snapshot=False, folded=folded)
        account.finish()
        assert promises(account.violations) == expected, folded


def test_a_value_that_was_put_back_is_no_second_publish() -> None:
    for event, snapshot, expected in (("e1", True, []), ("e1", False, ["P5"]), ("e2", True, ["P5"])):
        account = SessionUpdates("watcher")
        account.update(1.0, "t/1", 1, 1, snapshot=True, event="e1")
        account.update(2.0, "t/1", 1, SECOND, snapshot=snapshot, event=event)
        account.finish()
        assert promises(account.violations) == expected


HOLE = ((1, 1, True), (4, 4, False))
"""Two updates are missing, noticed after 1 s."""


def marked(*updates: tuple[int, int, bool, int]) -> SessionUpdates:
    """What a session saw of a topic, a second each: value, version, snapshot, folded."""
    account = SessionUpdates("watcher")
    for at, (value, version, snapshot, folded) in enumerate(updates):
        account.update(float(at), "t/1", value, version, snapshot=snapshot, folded=folded)
    account.finish()
    return account


@pytest.mark.parametrize(
    ("updates", "expected"),
    [
        pytest.param([(1, 1, True, 0), (4, 4, False, 2), (5, 5, False, 0)], [], id="exactly what is missing"),
        pytest.param([(1, 1, True, 0), (4, 4, False, 1)], ["P2"], id="less than is missing"),
        pytest.param([(1, 1, True, 0), (4, 4, False, 3)], ["P2"], id="more than is missing"),
        pytest.param([(1, 1, True, 0), (2, 2, False, 1)], ["P2"], id="nothing is missing"),
        pytest.param([(1, 1, True, 0), (9, 9, True, 3)], [], id="a snapshot says nothing of what came before it"),
        pytest.param([(3, 3, False, 2)], [], id="the first of a topic that was made while it was selected"),
        pytest.param([(3, 3, False, 0)], ["P2"], id="the first of a topic, without those before it"),
        pytest.param([(1, 1, False, 1)], ["P2"], id="the first of a topic, of which there are none before"),
        pytest.param([(1, SECOND + 1, False, 0)], [], id="the first of a topic in a later generation"),
        pytest.param([(9, SECOND + 4, False, 8)], [], id="the first of a topic, folded over generations"),
        pytest.param([(9, SECOND + 4, False, 3)], ["P2"], id="the first of a topic, without those of a generation"),
        pytest.param([(1, 1, True, 0), (4, SECOND + 1, False, 2)], [], id="over generations, by values"),
        pytest.param([(1, 1, True, 0), (4, SECOND + 1, False, 1)], ["P2"], id="too few over generations"),
        pytest.param([(1, 1, True, 0), (4, SECOND + 1, False, 5)], [], id="over generations, some were refused"),
    ],
)
def test_a_mark_tells_exactly_what_is_missing(updates: list[tuple[int, int, bool, int]], expected: list[str]) -> None:
    assert promises(marked(*updates).violations) == expected


def test_no_welcome_declares_a_hole() -> None:
    for kept in (True, False):
        account = seen(*HOLE)
        account.welcomed(Welcome(5.0, kept=kept, conflated=None))
        account.finish()
        assert promises(account.violations) == ["P2"]


def resumed(*steps: Welcome | tuple[int, int]) -> list[str]:
    """What is found of one session: welcomes, and marked updates of a topic each: packet number, folded."""
    account = SessionUpdates("watcher")
    for at, step in enumerate(steps):
        if isinstance(step, Welcome):
            account.welcomed(step)
        else:
            number, folded = step
            account.update(float(at), f"t/{number}", 9, 9, snapshot=True, folded=folded, number=number)
    account.finish()
    return [f"{each.promise} {each.what}" for each in account.violations]


def welcome(conflated: int | None, through: int, *, kept: bool = True, only: bool = True) -> Welcome:
    return Welcome(5.0, kept=kept, conflated=conflated, through=through, only=only)


@pytest.mark.parametrize(
    ("steps", "broken"),
    [
        pytest.param([(1, 2), welcome(2, 1)], False, id="all had come before"),
        pytest.param([(1, 2), welcome(3, 2), (2, 1)], False, id="one is sent again"),
        pytest.param([(1, 2), welcome(2, 1), (2, 4), welcome(4, 2), (3, 0)], False, id="each counts one connection"),
        pytest.param([(1, 2), welcome(2, 1), (2, 4)], False, id="nobody counts the last connection"),
        pytest.param([(1, 2), welcome(1, 1)], True, id="counts fewer than the marks"),
        pytest.param([(1, 2), welcome(3, 2), (2, 0)], True, id="counts more than the marks"),
        pytest.param([(1, 2), welcome(2, 2), (2, 1)], True, id="counts fewer than with what is sent again"),
        pytest.param([welcome(0, 1), (1, 2)], True, id="counts nothing, and what is sent again is marked"),
        pytest.param([(1, 0), welcome(3, 4), (2, 1)], False, id="the rest of what is sent again did not arrive"),
        pytest.param([(1, 0), welcome(1, 4), (2, 2)], True, id="already the first of it is too much"),
        pytest.param([(1, 2), welcome(1, 1, only=False)], False, id="a welcome that was lost counted the rest"),
        pytest.param([(1, 2), welcome(3, 1, only=False), (2, 0)], True, id="more than all marks"),
        pytest.param([(1, 2), welcome(None, 1)], False, id="the server does not know"),
        pytest.param([(5, 2), welcome(None, 0, kept=False), (1, 1), welcome(1, 1)], False, id="numbers begin anew"),
        pytest.param([(5, 2), welcome(3, 5), welcome(None, 0, kept=False)], True, id="judged before they begin anew"),
    ],
)
def test_marks_and_welcomes_add_up(steps: list[Welcome | tuple[int, int]], broken: bool) -> None:
    assert [each[:2] for each in resumed(*steps)] == ["P2"] * broken


def test_marks_are_counted() -> None:
    account = marked((1, 1, True, 0), (4, 4, False, 2), (6, 6, False, 1), (9, 9, True, 2))
    assert (account.violations, account.folds.updates, account.folds.marks, account.holes) == ([], 5, 3, 0)


def test_who_reads_slowly_may_have_been_told_long_ago() -> None:
    account = SessionUpdates("slow", slack=20.0)
    account.notice(1.0, "values_reread")
    account.update(1.0, "t/1", 1, 1, snapshot=True)
    account.update(1.0 + NEAR + 19.0, "t/1", 4, 4, snapshot=False)
    account.finish()
    assert account.violations == []
    account.update(1.0 + NEAR + 21.0, "t/1", 7, 7, snapshot=False)
    account.finish()
    assert promises(account.violations) == ["P2"]


@pytest.mark.parametrize(("at", "code", "declared"), [
    (2.0, "grid_lost_writes", True),
    (2.0, "values_reread", True),
    (2.0, "slowed_down", False),
    (1.5 + NEAR, "values_reread", False),
])  # fmt: skip
def test_a_notice_declares_a_hole_near_it(at: float, code: str, declared: bool) -> None:
    account = seen(*HOLE)
    account.notice(at, code)
    account.finish()
    assert promises(account.violations) == ([] if declared else ["P2"])


@pytest.mark.parametrize(
    ("notice", "version", "declared"),
    [
        pytest.param(2.0, SECOND + 1, True, id="of the new generation"),
        pytest.param(0.5, SECOND + 1, False, id="of an older one"),
        pytest.param(2.0, 5, False, id="long before a hole within a generation"),
    ],
)
def test_a_notice_declares_what_is_lost_between_generations(notice: float, version: int, declared: bool) -> None:
    """Found: a client read the notice, then nothing for nine seconds, and then the first update behind the loss."""
    account = SessionUpdates("bob")
    account.update(1.0, "t/1", 1, 1, snapshot=True)
    account.notice(notice, "grid_lost_writes")
    account.update(3.0 + NEAR, "t/1", 5, version, snapshot=False)
    account.finish()
    assert promises(account.violations) == ([] if declared else ["P2"])


@pytest.mark.parametrize(
    ("kept", "quiet", "declared"), [(True, 1.0, True), (True, NEAR + 1, False), (False, 1.0, False)]
)
def test_a_notice_declares_a_hole_behind_an_absence(kept: bool, quiet: float, declared: bool) -> None:
    """Found: a notice came, the connection was lost at once, and what the notice was about came ten seconds later."""
    account = seen((1, 1, True))
    account.notice(3.0, "grid_lost_writes")
    account.update(3.0 + quiet, "t/2", 1, 1, snapshot=True)
    account.welcomed(Welcome(30.0, kept=kept, conflated=None))
    account.update(30.5, "t/1", 9, 9, snapshot=False)
    account.finish()
    assert promises(account.violations) == ([] if declared else ["P2"])


def test_what_was_not_selected_is_no_hole() -> None:
    account = seen((1, 1, True))
    account.deselected(["t/1", "t/2"])
    account.update(3.0, "t/1", 9, 9, snapshot=False)
    account.update(4.0, "t/1", 11, 11, snapshot=False)
    account.finish()
    assert [violation.at for violation in account.violations] == [4.0]


# --- Publishes --------------------------------------------------------------------------------------------------------


def published(*values: int, version: int = 0) -> Publishes:
    """Somebody asked for 1, 2, … up to the last of *values*, a second each, and these were acknowledged."""
    account = Publishes()
    for value in range(1, max(values) + 1):
        assert account.ask(float(value), "t/1", "s") == value
        if value in values:
            account.acknowledge(value + 0.5, "t/1", value, version + value, f"e{value}")
    return account


def log(*entries: tuple[int, int], generation: int = 1, at: float = 100.0) -> Snapshot:
    """What Redis held: value and version; versions that are not those of the publishes are of another one."""
    found = [
        Entry(f"e{value}" if version == value else f"e{value}-{version}", version, value) for value, version in entries
    ]
    return Snapshot(at, generation, {"t/1": found})


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([(1, 1), (2, 2), (3, 3)], [], id="as told"),
        pytest.param([(1, 1), (3, 3)], ["P5"], id="an acknowledged one is missing"),
        pytest.param([(1, 1), (2, 2), (3, 3), (3, 4)], ["P5"], id="one is there twice"),
        pytest.param([(1, 1), (2, 4), (3, 5)], ["P5", "P5"], id="other versions than told"),
        pytest.param([(2, 2), (1, 1), (3, 3)], ["P6"], id="in another order"),
        pytest.param([(1, 1), (2, 2), (3, 3), (7, 7)], ["P5"], id="more than was asked for"),
    ],
)
def test_the_log_has_what_was_acknowledged(entries: list[tuple[int, int]], expected: list[str]) -> None:
    account = published(1, 2, 3)
    assert account.judge_log(log(*entries)) == []
    assert promises(account.violations) == expected


def test_what_was_put_back_is_known_by_its_event() -> None:
    account = published(1, 2)
    back = Entry("e2", SECOND, 2)
    account.judge_log(Snapshot(100.0, 2, {"t/1": [Entry("e1", 1, 1), Entry("e2", 2, 2), back]}))
    account.judge_log(Snapshot(100.0, 2, {"t/1": [Entry("e1", 1, 1), back]}))
    assert account.violations == []


def test_what_was_not_acknowledged_may_be_there_or_not() -> None:
    for entries in ([(1, 1), (3, 3)], [(1, 1), (2, 2), (3, 3)]):
        account = published(1, 3)
        account.judge_log(log(*entries))
        assert account.violations == []


def test_what_was_acknowledged_after_the_reading_began_may_be_missing() -> None:
    account = published(1, 2, 3)
    account.judge_log(log((1, 1), at=2.0))
    assert account.violations == []


def test_a_topic_that_nobody_publishes_to_is_found() -> None:
    account = Publishes()
    account.judge_log(log((1, 1)))
    assert promises(account.violations) == ["P5"]


def test_what_an_older_generation_has_lost_is_told_to_be_declared() -> None:
    account = published(1, 2)
    lost = account.judge_log(log((1, 1), generation=2))
    assert [(each.value, each.generation, each.session) for each in lost] == [(2, 1, "s")]
    assert account.violations == []


def test_a_publish_is_repeated_only_if_the_grid_forgot_it_before_it_was_acknowledged() -> None:
    twice = log((1, 1), (1, SECOND + 1), generation=2)
    for forgotten, expected in (((1.2, 1.3), []), ((2.0, 3.0), ["P5"]), ((0.0, 0.5), ["P5"])):
        account = published(1)
        account.acknowledge(1.5, "t/1", 1, SECOND + 1, f"e1-{SECOND + 1}")
        account.forgotten.append(Forgotten(*forgotten))
        account.judge_log(twice)
        assert promises(account.violations) == expected


def test_receipts_rise_and_have_events_of_their_own() -> None:
    account = published(1, 2, 3)
    account.acknowledge(3.5, "t/1", 3, 2, "e1")
    account.judge_receipts()
    assert promises(account.violations) == ["P6", "P5"]


# --- Sessions ---------------------------------------------------------------------------------------------------------


def test_a_session_stays_what_it_was() -> None:
    account = Sessions()
    was = Identity("s", "alice", {"a": "1"}, ("+x/**",))
    perhaps = Identity("s", "alice", {"a": "2"}, ("+x/**",))
    account.compare(1.0, "alice", [was, perhaps], was)
    account.compare(1.0, "alice", [was, perhaps], perhaps)
    assert account.violations == []
    account.compare(2.0, "alice", [was, perhaps], Identity("s", "alice", {"a": "1"}, ()))
    assert promises(account.violations) == ["P1"]


@pytest.mark.parametrize(
    ("away", "expired", "excused", "expected"),
    [
        pytest.param(29.0, True, False, [], id="the window was over"),
        pytest.param(4.0, True, False, ["P7"], id="expired too early"),
        pytest.param(29.0, False, False, ["P7"], id="lost for another reason"),
        pytest.param(1.0, True, True, [], id="nobody knows when its window ends"),
    ],
)
def test_a_session_ends_for_good_reasons_only(away: float, expired: bool, excused: bool, expected: list[str]) -> None:
    account = Sessions()
    account.opened(0.0, "s", "alice", 30.0)
    account.died(100.0, "s", "why", heard=100.0 - away, expired=expired, excused=excused)
    account.judge_deaths([], [])
    assert promises(account.violations) == expected


@pytest.mark.parametrize(
    ("node_end", "forgotten", "expected"),
    [
        pytest.param(NodeEnd(95.0, "n1"), Forgotten(97.0, 98.0), [], id="its node ended, then the grid forgot"),
        pytest.param(NodeEnd(97.0, "n1"), Forgotten(95.0, 96.0), [], id="its node had not yet restored it"),
        pytest.param(NodeEnd(97.0, "n2"), Forgotten(95.0, 96.0), ["P7"], id="its node lives"),
        pytest.param(NodeEnd(89.0, "n1"), Forgotten(95.0, 96.0), ["P7"], id="its client has heard of its node since"),
        pytest.param(NodeEnd(99.0, "n1"), Forgotten(91.0, 92.0), ["P7"], id="its node had restored it"),
        pytest.param(NodeEnd(95.0, "n1"), Forgotten(101.0, 102.0), ["P7"], id="the grid had it when its client came"),
        pytest.param(NodeEnd(95.0, "n1"), Forgotten(97.0, 98.0, kept=80.0), ["P7"], id="what is left has it"),
        pytest.param(NodeEnd(95.0, "n1"), Forgotten(97.0, 98.0, kept=40.0), [], id="what is left is too old"),
    ],
)
def test_a_session_may_be_lost_if_neither_a_node_nor_the_grid_has_it(
    node_end: NodeEnd, forgotten: Forgotten, expected: list[str]
) -> None:
    account = Sessions()
    account.opened(50.0, "s", "alice", 30.0)
    account.owned(60.0, "0", "s", 1, "n1:abc")
    account.died(100.0, "s", "session_unknown", heard=90.0, expired=False)
    account.judge_deaths([node_end], [forgotten])
    assert promises(account.violations) == expected


def test_what_was_closed_stays_closed_and_is_confirmed_by_1000() -> None:
    account = Sessions()
    account.opened(0.0, "s", "alice", 30.0)
    account.wrong_close(1.0, "s", 4204)
    account.left(1.0, "s", confirmed=True)
    account.resumed_after_end(2.0, "s")
    account.judge_ends([])
    assert promises(account.violations) == ["P7", "P7"]


def test_what_was_closed_may_come_back_with_a_grid_that_forgot_it() -> None:
    for forgotten, expected in (((1.0, 3.0), []), ((4.5, 6.0), ["P7"]), ((0.0, 1.0), ["P7"])):
        account = Sessions()
        account.opened(0.0, "s", "alice", 30.0)
        account.left(2.0, "s", confirmed=True)
        account.resumed_after_end(5.0, "s")
        account.judge_ends([Forgotten(*forgotten)])
        assert promises(account.violations) == expected


def test_ids_are_not_used_twice() -> None:
    account = Sessions()
    account.opened(0.0, "s", "alice", 30.0)
    account.opened(1.0, "s", "bob", 30.0)
    assert promises(account.violations) == ["P1"]


def test_an_epoch_has_one_owner() -> None:
    account = Sessions()
    account.owned(1.0, "0", "s", 1, "n1:a")
    account.owned(2.0, "0", "s", 1, "n1:a")
    account.owned(3.0, "0", "s", 2, "n2:b")
    account.owned(4.0, "1", "s", 2, "n3:c")
    assert account.violations == []
    account.owned(5.0, "1", "s", 2, "n1:a")
    assert promises(account.violations) == ["P3"]


def lossy(*told: tuple[str, float]) -> Account:
    """A publisher, two listeners, and two publishes of the first generation, of which the grid has lost the second."""
    account = Account()
    for session in ("publisher", "listener", "other"):
        account.opened(0.0, session, session, window=30.0)
    account.selected(1.0, "listener", "t/**")
    account.selected(1.0, "other", "u/**")
    for value in (1, 2):
        account.publishes.ask(float(value + 1), "t/1", "publisher")
        account.publishes.acknowledge(value + 1.5, "t/1", value, value, f"e{value}")
    account.generations = [(0.0, 1), (10.0, 2)]
    account.snapshots.append(log((1, 1), generation=2))
    for session, at in told:
        account.notice(at, session, "grid_lost_writes")
    return account


@pytest.mark.parametrize(
    ("told", "undeclared"),
    [
        pytest.param([("publisher", 10.5), ("listener", 11.0)], [], id="to both"),
        pytest.param([("publisher", 10.5)], ["listener"], id="not to who listens"),
        pytest.param([("listener", 10.5)], ["publisher"], id="not to who published"),
        pytest.param([("publisher", 4.0), ("listener", 4.0)], ["publisher", "listener"], id="of another loss"),
        pytest.param([], ["publisher", "listener"], id="to nobody"),
    ],
)
def test_a_loss_is_declared_to_whom_it_concerns(told: list[tuple[str, float]], undeclared: list[str]) -> None:
    violations = lossy(*told).judge()
    assert [violation.who for violation in violations] == undeclared
    assert set(promises(violations)) <= {"P2"}


def test_who_has_left_need_not_be_told() -> None:
    account = lossy(("publisher", 10.5))
    account.sessions.left(9.0, "listener", confirmed=True)
    assert account.judge() == []


def test_everybody_ends_at_the_values_of_the_grid() -> None:
    account = lossy(("publisher", 10.5), ("listener", 11.0))
    account.updates["listener"].update(3.0, "t/1", 1, 1, snapshot=True)
    values = {"t/1": (2, 2), "u/1": (5, 5)}
    assert account.behind({"t/1": (1, 1)}, ["publisher", "listener"]) == {}
    assert set(account.behind(values, ["publisher", "listener", "other"])) == {"listener", "other"}


def test_a_value_of_an_older_generation_may_be_shown_as_the_floor_of_a_newer_one() -> None:
    for version, behind in ((1, False), (SECOND, False), (SECOND + 1, True), (2 * SECOND, True)):
        account = lossy()
        account.updates["listener"].update(30.0, "t/1", 1, version, snapshot=True)
        assert bool(account.behind({"t/1": (1, 1)}, ["listener"])) is behind, version


def test_who_has_the_publish_that_nodes_put_back_under_a_higher_version_has_it() -> None:
    account = lossy()
    account.updates["listener"].update(30.0, "t/1", 15, SECOND + 8, snapshot=True)
    assert account.behind({"t/1": (15, 2 * SECOND + 2)}, ["listener"]) == {}
    assert account.behind({"t/1": (16, 2 * SECOND + 3)}, ["listener"]).keys() == {"listener"}


# --- The clock of Redis -----------------------------------------------------------------------------------------------

OFF = Off(10.0, 16.0, 40.0)
"""For 6 s the clock was 40 s ahead."""


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param([(11.0, 40.2), (17.0, 0.1)], [], id="as it was"),
        pytest.param([(11.0, 40.2)], [], id="that it is right again need not be told, as metrics are compared"),
        pytest.param([], ["P7"], id="nobody has noticed"),
        pytest.param([(17.0, 0.0)], ["P7"], id="only the end was noticed"),
        pytest.param([(11.0, 40.2), (12.0, 80.4)], ["P7"], id="two nodes took the same step for two"),
        pytest.param([(11.0, -40.0)], ["P7", "P7"], id="in the wrong direction"),
        pytest.param([(5.0, 40.0), (11.0, 40.0)], ["P7"], id="before it happened"),
        pytest.param([(11.0, 40.0), (90.0, 0.0)], ["P7"], id="long after all was over"),
    ],
)
def test_nodes_tell_how_the_clock_was_set(told: list[tuple[float, float]], expected: list[str]) -> None:
    assert promises(judge_clock([Told(at, "n1", shift) for at, shift in told], [OFF])) == expected


def test_a_clock_that_was_hardly_off_may_be_missed() -> None:
    assert judge_clock([], [Off(10.0, 10.0 + LASTS / 2, 40.0)]) == []


def test_a_step_may_be_missed_if_nobody_was_there_before_it() -> None:
    for starts, expected in (
        ({"n1": [0.0], "n2": [0.0, 12.0]}, ["P7"]),
        ({"n1": [0.0, 8.0], "n2": [0.0, 12.0]}, []),
        ({"n1": [0.0, 40.0], "n2": [0.0, 12.0]}, ["P7"]),
    ):
        assert promises(judge_clock([], [OFF], starts=starts)) == expected


def test_the_time_of_the_grid_may_stay_off_by_a_step_whose_end_was_forgotten() -> None:
    later = Off(50.0, 56.0, -20.0)
    told = [Told(11.0, "n1", 40.0), Told(51.0, "n1", 20.0), Told(57.0, "n2", 40.0)]
    assert promises(judge_clock(told, [OFF, later], forgotten=[Forgotten(12.0, 18.0)])) == []
    assert promises(judge_clock(told, [OFF, later], forgotten=[Forgotten(2.0, 8.0)])) == ["P7", "P7", "P7"]
    for shifts, expected in (
        ({"n1": 40.1, "n2": 39.9}, []),
        ({"n1": 0.1, "n2": 0.0}, []),
        ({"n1": 40.1, "n2": 0.0, "n3": 40.0}, ["P7"]),
        ({"n1": 20.0, "n2": 20.0}, ["P7", "P7"]),
    ):
        assert promises(judge_shifts(99.0, shifts, [0.0, 40.0])) == expected


def test_starts_of_nodes_are_read_from_their_logs() -> None:
    lines = [line("node_started", 101.0, "info"), line("grid_unreachable", 104.0), line("node_started", 107.0, "info")]
    assert read_starts(lines, began=100.0) == [1.0, 7.0]


def test_at_the_end_every_node_finds_the_clock_right() -> None:
    assert promises(judge_shifts(50.0, {"n1": 0.4, "n2": 40.0, "n3": -1.0})) == ["P7"]


def test_what_nodes_tell_of_the_clock_is_read_from_their_logs() -> None:
    lines = [
        line("grid_clock_stepped", 103.0, "warning", seconds=40.0, shift_seconds=40.5),
        line("grid_unreachable", 104.0),
    ]
    assert read_told("n1", lines, began=100.0) == [Told(3.0, "n1", 40.5)]


# --- What is left -----------------------------------------------------------------------------------------------------


def test_keys_of_sessions_have_an_end() -> None:
    keys = [
        Key("gateway:{s1}:session:abc", -1),
        Key("gateway:{t1}:receipts:abc", 5_000),
        Key("gateway:{t1}:receipts:xyz", -1),
        Key("gateway:{t1}:values", -1),
    ]
    violations = judge_keys(9.0, keys, {"abc": True, "xyz": False})
    assert [violation.who for violation in violations] == [keys[0].name, keys[2].name]
    assert "confirmed" in violations[0].what
    assert "confirmed" not in violations[1].what


def test_connections_are_bounded() -> None:
    assert judge_connections(1.0, "redis", 3 * MOST_CONNECTIONS, 3) == []
    assert promises(judge_connections(1.0, "redis", 3 * MOST_CONNECTIONS + 1, 3)) == ["P10"]


def line(event: str, at: float, level: str = "error", **fields: object) -> str:
    time = datetime.fromtimestamp(at, UTC).isoformat()
    return json.dumps({"time": time, "level": level, "event": event, **fields})


def test_logs_tell_of_bugs_and_noise() -> None:
    quiet = [line("grid_unreachable", 100 + 2 * number) for number in range(50)]
    assert judge_log("n1", quiet, began=100) == []
    loud = [line("grid_unreachable", 100 + number / 10) for number in range(50)]
    assert promises(judge_log("n1", loud, began=100)) == ["P10"]
    assert LOUD["grid_unreachable"] <= 50
    bugs = [
        line("background_task_failed", 101, task="tail", error="boom"),
        line("session_opened", 102, "info", exception="Traceback"),
        "Traceback (most recent call last):",
    ]
    assert promises(judge_log("n1", bugs, began=100)) == ["bug", "bug", "bug"]


def test_generations_are_read_from_versions() -> None:
    assert [generation_of(version) for version in (1, SECOND - 1, SECOND, 2 * SECOND + 7)] == [1, 1, 2, 3]
