"""What the account finds in the lives of sessions and in losses: histories with and without each kind of violation."""

from __future__ import annotations

import pytest

from tests.chaos.account.account import Account
from tests.chaos.account.forgotten import Forgotten, NodeEnd
from tests.chaos.account.sessions import Identity, Sessions
from tests.chaos.histories import SECOND, log, promises


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
