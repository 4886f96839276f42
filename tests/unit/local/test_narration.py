"""What is told is what was counted, also without a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from gateway.local.checker import RecoverySeen, Tally, Verdict, Violation
from gateway.local.narration import Narrator, describe_recoveries


def narrate(*, terminal: bool = False) -> tuple[Narrator, io.StringIO]:
    text = io.StringIO()
    return Narrator(Console(file=text, force_terminal=terminal, width=120, highlight=False)), text


def recovery(session: str, outcome: str, gap: float, *, replayed: bool = False) -> RecoverySeen:
    return RecoverySeen(session=session, outcome=outcome, node="n1", gap_seconds=gap, lost=0, replayed=replayed)


def test_recoveries_in_one_line() -> None:
    assert describe_recoveries([], 54) == "all 54 sessions stayed connected and noticed nothing"
    assert describe_recoveries([recovery("s1", "reattached", 0.25), recovery("s2", "reattached", 0.75)], 2) == (
        "2 of 2 sessions lost their connection: 2 reattached, median 0.50 s, longest 0.75 s"
    )
    assert describe_recoveries([recovery("s1", "failed_over", 0.25), recovery("s1", "reattached", 0.1)], 3) == (
        "1 of 3 sessions lost their connection: 1 failed_over, 1 reattached, median 0.17 s, longest 0.25 s; "
        "the other 2 noticed nothing"
    )


def test_steps_are_numbered_and_violations_written_out() -> None:
    narrator, text = narrate()

    narrator.say("[not markup]")
    with narrator.step("A node dies: kill -9 n1"):
        pass
    narrator.seen("fine", [])
    with narrator.step("The grid dies"):
        pass
    narrator.seen("not fine", [Violation("P6", "s1 on [prices]: went back")] * 22)

    lines = text.getvalue().splitlines()
    assert lines[:8] == [
        "[not markup]",
        "",
        "1. A node dies: kill -9 n1",
        "   ✓ fine",
        "",
        "2. The grid dies",
        "   ✗ not fine",
        "     P6: s1 on [prices]: went back",
    ]
    assert lines[-1] == "     … and 2 more"


def test_the_verdict_of_a_pass() -> None:
    narrator, text = narrate()
    verdict = Verdict(tally=Tally(delivered=1234, snapshots=5), published=600, sessions=54, checks=300)
    verdict.judge_recoveries([recovery("s1", "reattached", 0.25), recovery("s2", "failed_over", 0.5, replayed=True)])

    narrator.verdict(verdict, 71.6)

    told = text.getvalue()
    assert "54 sessions" in told
    assert "reattached" in told
    assert "0.250 s" in told
    assert "… of these replayed │          1 │" in told
    assert "1,234" in told
    assert "Every promise was kept (300 comparisons at the end, 72 s)." in told


def test_the_verdict_of_a_failure() -> None:
    narrator, text = narrate(terminal=True)
    verdict = Verdict(violations=[Violation("P5", "published twice")], tally=Tally(delivered=9, lost=3))

    narrator.verdict(verdict, 1.0)

    told = text.getvalue()
    assert "Promises were broken: 1" in told
    assert "P5: published twice" in told
    assert "Every promise" not in told
