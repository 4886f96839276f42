"""Who failed often recently."""

from __future__ import annotations

from gateway.core.pacing.failures import FORGIVEN, FORGIVEN_PER_SECOND, MOST_REMEMBERED, Failures


def test_some_failures_are_mistakes_and_one_more_is_not() -> None:
    failures = Failures()
    for _ in range(FORGIVEN):
        assert not failures.often("a", 0.0)
        assert failures.failed("a", 0.0) == 0

    assert failures.often("a", 0.0)
    assert failures.failed("a", 0.0) == 1 / FORGIVEN_PER_SECOND, "seconds until one is forgiven"
    assert failures.failed("a", 1 / FORGIVEN_PER_SECOND) == 0
    assert not failures.often("b", 0.0)


def test_everybody_is_forgiven_soon_after_the_last_failure_however_many_there_were() -> None:
    failures = Failures()
    for number in range(1000):
        failures.failed("a", number * 0.01)

    assert failures.often("a", 9.99)
    assert not failures.often("a", 10.0 + 1 / FORGIVEN_PER_SECOND)
    for _ in range(2):
        failures.failed("a", 15.0)
    assert failures.often("a", 15.0), "and who goes on is known again soon"


def test_what_is_remembered_is_bounded_and_the_last_ones_are_kept() -> None:
    failures = Failures()
    for _ in range(FORGIVEN):
        failures.failed("steady", 0.0)
    for number in range(2 * MOST_REMEMBERED):
        failures.failed(f"passing {number}", 0.0)
        if number % 100 == 0:
            failures.failed("steady", 0.0)

    assert len(failures) == MOST_REMEMBERED
    assert failures.often("steady", 0.0)
