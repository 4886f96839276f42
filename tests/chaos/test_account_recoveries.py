"""What the account demands of recoveries: histories with and without each excuse."""

from __future__ import annotations

import os

import pytest

from tests.chaos import waiting
from tests.chaos.account.recoveries import AFTER, BUSY, GRID, NODE, PARTED, PLANNED, Recoveries, Recovery, Trouble
from tests.chaos.faults import CATALOGUE
from tests.chaos.histories import promises

pytestmark = [pytest.mark.promise("P12"), pytest.mark.promise("P13")]


def back(
    outcome: str = "failed_over",
    *,
    replayed: bool = False,
    reason: str = "other_node",
    named: bool = True,
    away: float = 0.5,
) -> Recovery:
    """A session comes from n1 to n2 after two seconds."""
    return Recovery(
        at=102.0,
        heard=100.0,
        away=away,
        session="s",
        who="listener",
        outcome=outcome,
        reason=reason,
        former="n1",
        node="n2",
        named=named,
        replayed=replayed,
    )


def judged(recovery: Recovery, *troubles: Trouble, subscribed: float | None = 1.0) -> Recoveries:
    account = Recoveries()
    account.all.append(recovery)
    account.troubles += troubles
    account.judge({} if subscribed is None else {"s": [subscribed]})
    return account


DIED = Trouble(99.0, 103.0, NODE, "n1")


@pytest.mark.parametrize(
    ("recovery", "troubles", "expected"),
    [
        pytest.param(back("handed_over", reason=""), [], [], id="handed over"),
        pytest.param(back("reattached", reason=""), [], [], id="reattached"),
        pytest.param(back(replayed=True), [], ["P12"], id="replayed, with nothing to keep it from a handoff"),
        pytest.param(back(replayed=True, reason="gap"), [], [], id="a buffer was too short, and it is replayed"),
        pytest.param(back(reason="gap"), [], ["P13"], id="a buffer was too short, and values come"),
        pytest.param(back(replayed=True, away=3.5), [], [], id="a buffer may have been too short, and it is replayed"),
        pytest.param(back(away=3.5), [], ["P13"], id="a buffer may have been too short, and values come"),
        pytest.param(back(away=3.5, named=False), [], [], id="likewise, and the client knew no positions"),
        pytest.param(back(replayed=True), [DIED], [], id="a node died, and it is replayed"),
        pytest.param(back(), [DIED], ["P13"], id="a node died, and values come"),
        pytest.param(back(named=False), [DIED], [], id="a node died, and the client knew no positions"),
        pytest.param(back(), [Trouble(99.0, 103.0, NODE, "n2")], [], id="the node that serves it stood still"),
        pytest.param(back(replayed=True), [Trouble(90.0, 95.0, PARTED)], [], id="links had yet to come back"),
        pytest.param(back(), [Trouble(90.0, 95.0, PARTED)], ["P13"], id="that is no reason to send values"),
        pytest.param(back(), [Trouble(80.0, 99.9 - AFTER, PARTED)], ["P12"], id="links were back long before"),
        pytest.param(back(), [Trouble(102.1, 110.0, PARTED)], ["P12"], id="links broke later"),
        pytest.param(back(), [Trouble(90.0, 95.0, GRID)], [], id="the grid was hurt"),
        pytest.param(back(), [Trouble(100.0, 100.6, BUSY, "n1")], [], id="the former node had to wait"),
        pytest.param(back(), [Trouble(99.0, 100.4, BUSY, "n1")], ["P12"], id="it had to wait before"),
        pytest.param(back(), [Trouble(100.0, 100.6, BUSY, "n3")], ["P12"], id="a third node had to wait"),
    ],
)
def test_what_a_recovery_has_to_be(recovery: Recovery, troubles: list[Trouble], expected: list[str]) -> None:
    assert promises(judged(recovery, *troubles).violations) == expected


def test_who_has_no_subscription_and_who_has_just_begun_one_need_no_replay() -> None:
    assert not judged(back(), DIED, subscribed=None).violations
    assert not judged(back(), DIED, subscribed=98.0).violations
    assert promises(judged(back(), DIED, subscribed=96.0).violations) == ["P13"]


KILLED = Trouble(100.5, 103.0, NODE, "n1")


@pytest.mark.parametrize(
    ("recovery", "troubles", "opened", "demanded"),
    [
        pytest.param(back("mirrored", reason=""), [KILLED], 80.0, 1, id="from the copy"),
        pytest.param(back(replayed=True), [KILLED], 80.0, 1, id="not from the copy"),
        pytest.param(back(replayed=True), [KILLED], 97.0, 0, id="it had just come to its node"),
        pytest.param(back(reason="gap", replayed=True), [KILLED], 80.0, 0, id="its buffer was too short"),
        pytest.param(back(replayed=True), [KILLED, Trouble(91.0, 92.0, PLANNED)], 80.0, 0, id="a restart before"),
        pytest.param(back(replayed=True), [KILLED, Trouble(80.0, 90.0, PLANNED)], 79.0, 1, id="a restart long before"),
        pytest.param(back(replayed=True), [KILLED, Trouble(95.0, 96.0, PARTED)], 80.0, 0, id="nodes were parted"),
        pytest.param(back(replayed=True), [KILLED, Trouble(101.0, 104.0, NODE, "n3")], 80.0, 0, id="both died"),
        pytest.param(back(replayed=True), [KILLED, Trouble(99.0, 99.5, BUSY, "n3")], 80.0, 0, id="a node had to wait"),
        pytest.param(back(), [KILLED, Trouble(99.0, 99.5, GRID)], 80.0, 0, id="the grid was hurt"),
    ],
)
def test_a_copy_is_demanded_where_output_waits_for_it(
    recovery: Recovery, troubles: list[Trouble], opened: float, demanded: int
) -> None:
    account = Recoveries()
    account.copied = True
    account.all.append(recovery)
    account.troubles += troubles
    account.judge({"s": [1.0]}, opened={"s": opened})
    missing = demanded and recovery.outcome != "mirrored"
    assert (account.copies, promises(account.violations)) == (demanded, ["P12"] if missing else [])
    account = Recoveries()
    account.all.append(recovery)
    account.troubles += troubles
    account.judge({}, opened={"s": opened})
    assert (account.copies, account.violations) == (0, []), "nothing is demanded of copies that may lack something"


def test_what_was_demanded_is_counted() -> None:
    both = judged(back("handed_over", reason="")), judged(back(replayed=True), DIED)
    assert [(each.handoffs, each.replays) for each in both] == [(1, 0), (0, 1)]


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("node-killed", {"node": "n1"}, {(NODE, "n1")}),
        ("node-drained", {"node": "n1"}, {(PLANNED, "")}),
        ("nodes-restarted", {}, {(PLANNED, "")}),
        ("sessions-moved", {"to": "n1", "sessions": 1}, set()),
        ("node-link-cut", {"link": "n1-n2", "ways": ["up"]}, {(PARTED, "")}),
        ("link-cut", {"link": "n1", "ways": ["up"]}, set()),
        ("grid-link-cut", {"link": "n1-grid", "ways": ["up"]}, {(GRID, "")}),
        ("haproxy-killed", {}, set()),
        ("redis-stopped", {}, {(GRID, "")}),
    ],
)
def test_what_a_fault_excuses(name: str, parameters: dict[str, object], expected: set[tuple[str, str]]) -> None:
    found = CATALOGUE[name].troubles(parameters, 1.0, 2.0)
    assert {(each.kind, each.node) for each in found} == expected
    assert all((each.began, each.ended) == (1.0, 2.0) for each in found)


def test_a_process_that_waits_for_a_processor_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {7: 1.0, 8: 5.0}
    monkeypatch.setattr(waiting, "waited", lambda pid: seconds[pid])
    looks, nodes = waiting.Waiting(), {"n1": 7, "n2": 8}
    assert not looks.busy(nodes), "nobody knows since when"
    seconds[7] += 0.9 * waiting.WAITED
    assert not looks.busy(nodes)
    seconds[7] += 1.1 * waiting.WAITED
    assert looks.busy(nodes) == {"n1"}
    assert not looks.busy(nodes)


def test_what_a_process_waited_is_read_of_the_kernel() -> None:
    assert waiting.waited(os.getpid()) >= 0.0
    assert waiting.waited(2**22 + 1) == 0.0
