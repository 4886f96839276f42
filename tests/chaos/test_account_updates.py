"""What the account finds in what a session sees of topics: histories with and without each violation."""

from __future__ import annotations

import pytest

from tests.chaos.account.folds import Welcome
from tests.chaos.account.updates import NEAR, SessionUpdates
from tests.chaos.histories import SECOND, promises


def seen(*updates: tuple[int, int, bool]) -> SessionUpdates:
    """What a session saw of a topic, a second each, as its subscription began: value, version, snapshot."""
    account = SessionUpdates("watcher")
    account.shown(0.0)
    for at, (value, version, snapshot) in enumerate(updates):
        account.update(float(at), "t/1", value, version, snapshot=snapshot)
    return account


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
    """What a session saw of a topic, a second each, as its subscription began: value, version, snapshot, folded."""
    account = SessionUpdates("watcher")
    account.shown(0.0)
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


@pytest.mark.promise("P13")
@pytest.mark.parametrize(
    ("value", "shown", "notice", "expected"),
    [
        pytest.param(9, None, None, ["P13"], id="in place of updates"),
        pytest.param(4, None, None, [], id="the next one"),
        pytest.param(3, None, None, [], id="the same one again"),
        pytest.param(9, 4.0, None, [], id="after a failover that is not replayed"),
        pytest.param(9, 5.0 - NEAR - 0.1, None, ["P13"], id="long after it"),
        pytest.param(9, None, "values_reread", [], id="after a notice"),
        pytest.param(SECOND + 9, None, None, [], id="in a new generation"),
    ],
)
def test_a_current_value_takes_the_place_of_updates_only_where_values_are_shown(
    value: int, shown: float | None, notice: str | None, expected: list[str]
) -> None:
    account = SessionUpdates("watcher")
    account.update(1.0, "t/1", 3, 3, snapshot=True)
    if shown is not None:
        account.shown(shown)
    if notice is not None:
        account.notice(4.0, notice)
    account.update(5.0, "t/1", min(value, 9), value, snapshot=True)
    account.finish()
    assert promises(account.violations) == expected


@pytest.mark.promise("P13")
@pytest.mark.parametrize(("again", "expected"), [(False, []), (True, ["P13"])])
def test_a_value_that_is_due_may_come_late_and_once(again: bool, expected: list[str]) -> None:
    """Found: the grid refused all steps for four seconds after a failover, and its node was suspended then."""
    account = SessionUpdates("watcher")
    account.update(1.0, "t/1", 3, 3, snapshot=True)
    account.shown(2.0)
    if again:
        account.update(3.0, "t/1", 3, 3, snapshot=True)
    account.update(3.0 + NEAR, "t/1", 9, 9, snapshot=True)
    account.finish()
    assert promises(account.violations) == expected


def test_a_version_that_was_put_back_is_no_missing_update() -> None:
    """Found: values 21, put back twice, and 22: versions 1, 3, and nothing in between that anybody published."""
    account = SessionUpdates("watcher")
    account.update(1.0, "t/1", 21, 1, snapshot=True)
    account.update(2.0, "t/1", 22, 3, snapshot=True)
    account.update(3.0, "t/1", 24, 5, snapshot=True)
    account.finish()
    (found,) = account.violations
    assert found.what.startswith("1 current values came in place of updates, unasked")
    assert found.what.endswith("value 24 version 5 folded 0 after value 22 version 3")


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
    ("told", "version", "folded", "begins"),
    [
        pytest.param(4.0, SECOND + 1, 0, True, id="the first of the generation that lost it"),
        pytest.param(4.0, SECOND + 3, 2, True, id="folded into it"),
        pytest.param(4.0, SECOND + 3, 1, False, id="others of that generation are missing"),
        pytest.param(6.0 + NEAR, SECOND + 1, 0, False, id="nothing was lost at that time"),
    ],
)
def test_a_topic_that_the_grid_has_lost_begins_anew_for_a_new_session(
    told: float, version: int, folded: int, begins: bool
) -> None:
    """Found: a session opened between the loss and the moment in which another node put the values back."""
    account = SessionUpdates("bob")
    account.update(5.0, "t/1", 449, version, snapshot=False, folded=folded)
    account.finish(losses=[told])
    assert promises(account.violations) == ([] if begins else ["P2"])


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
