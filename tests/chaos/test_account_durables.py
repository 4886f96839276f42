"""What the account finds in what readers of durable subscriptions were handed, opening by opening."""

from __future__ import annotations

from math import inf

import pytest

from tests.chaos.account.durables import DurableReader
from tests.chaos.account.forgotten import Forgotten
from tests.chaos.account.publishes import Publishes
from tests.chaos.account.readers import Readers
from tests.chaos.histories import promises

pytestmark = pytest.mark.promise("P14")

Step = int | str
"""An event that is handed out; ``open``; ``ack``, ``ask``: an acknowledgement with and without an answer."""


def published(count: int) -> Publishes:
    """Somebody publishes 1, 2, …, in the first seconds."""
    publishes = Publishes()
    for number in range(1, count + 1):
        publishes.ask(number / 10, "c0/a", "s")
        publishes.acknowledge(number / 10, "c0/a", number, number, f"5-1-{number}")
    return publishes


def read(*steps: Step, gap_at: int = 0) -> Readers:
    """Sessions read, a second for each step, from the tenth on."""
    readers, reader = Readers(), DurableReader("durable-0", "c0/**")
    readers.durables.append(reader)
    for at, step in enumerate(steps, 10):
        match step:
            case "open":
                reader.open()
            case "ack" | "ask":
                acknowledgement = reader.acknowledge(float(at))
                acknowledgement.answered = at + 0.5 if step == "ack" else inf
            case int():
                reader.read(float(at), "c0/a", step, f"5-1-{step}", gap=step == gap_at)
    return readers


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(["open", 1, 2, "ack", "open", 3, 4], id="behind what was acknowledged"),
        pytest.param(["open", 1, "ack", 2, 3, "open", 2, 3, 4], id="what was not comes again"),
        pytest.param(["open", 1, 2, "ask", "open", 3, 4], id="an acknowledgement that was executed"),
        pytest.param(["open", 1, 2, "ask", "open", 1, 2, 3], id="and one that was not"),
        pytest.param(["open", 1, "ack", 2, "ask", 3, "ask", "open", 3, 4], id="one of two was"),
        pytest.param(["open", 1, 2, "open", "open", 1, 2], id="one that was handed nothing"),
    ],
)
def test_what_is_as_it_should_be(steps: list[Step]) -> None:
    readers = read(*steps)
    readers.judge(published(4), [])
    assert readers.violations == []


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(["open", 1, 3], id="one is missing"),
        pytest.param(["open", 1, 1], id="one came twice"),
        pytest.param(["open", 2], id="the earliest is missing"),
        pytest.param(["open", 1, "ack", 2, "open", 3], id="one that was not acknowledged is missing"),
        pytest.param(["open", 1, 2, "ack", "open", 2, 3], id="one came again though it was acknowledged"),
        pytest.param(["open", 1, "ask", 2, "open", 3], id="nobody had asked for that place"),
    ],
)
def test_each_violation_is_found(steps: list[Step]) -> None:
    readers = read(*steps)
    readers.judge(published(4), [])
    assert promises(readers.violations) == ["P14"]


def test_what_comes_again_as_the_grid_forgot_the_acknowledgement() -> None:
    readers = read("open", 1, 2, "ack", "open", 2, 3)
    readers.judge(published(3), [Forgotten(13.0, 14.0, kept=13.0)])
    assert promises(readers.violations) == ["P14"], "only at a place that was acknowledged once"
    readers = read("open", 1, "ack", 2, "ack", "open", 2, 3)
    readers.judge(published(3), [Forgotten(14.5, 15.0, kept=14.5)])
    assert readers.violations == []


def test_a_gap_is_told_and_means_a_loss() -> None:
    readers = read("open", 1, 3, gap_at=3)
    readers.judge(published(3), [])
    assert promises(readers.violations) == ["P14"], "nothing was lost"
    readers = read("open", 1, 3, gap_at=3)
    readers.judge(published(3), [Forgotten(2.0, 3.0)])
    assert readers.violations == []


def test_figures_tell_what_came_again() -> None:
    readers = read("open", 1, 2, "open", 1, 2, 3)
    assert readers.durable_figures == "5 events in 2 openings, 2 came again, 0 gaps told"
