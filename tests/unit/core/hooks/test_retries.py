"""What answers mean, and when it is tried again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.hooks.retries import LONGEST, LONGEST_ASKED, Verdict, judge, pause, read_retry_after


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        *((each, Verdict.DELIVERED) for each in (200, 202, 204, 299)),
        *((each, Verdict.AGAIN) for each in (100, 301, 307, 400, 401, 404, 429, 500, 503)),
        (410, Verdict.GONE),
        (413, Verdict.SMALLER),
    ],
)
def test_what_a_status_means(status: int, verdict: Verdict) -> None:
    assert judge(status) is verdict


def test_pauses_double_up_to_a_bound() -> None:
    assert [pause(failures, 0.0) for failures in (1, 2, 3, 4)] == [0.5, 1.0, 2.0, 4.0]
    assert pause(1, 0.999) == pytest.approx(1.0, abs=0.001)
    assert pause(10_000, 0.0) == LONGEST / 2


def test_a_receiver_can_ask_for_more_but_not_for_any_length() -> None:
    assert pause(1, 0.0, asked=20.0) == 20.0
    assert pause(9, 0.0, asked=0.0) == 128.0
    assert pause(1, 0.0, asked=1e9) == LONGEST_ASKED


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("120", 120.0),
        (" 0 ", 0.0),
        ("9" * 5000, LONGEST_ASKED),
        ("Thu, 01 Jan 1970 00:20:00 GMT", 200.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
        ("", None),
    ],
)
def test_the_header_retry_after(text: str | None, seconds: float | None) -> None:
    assert read_retry_after(text, now=1000.0) == seconds


@given(st.text())
def test_no_header_does_any_harm(text: str) -> None:
    found = read_retry_after(text, now=1000.0)
    assert found is None or 0 <= found <= LONGEST_ASKED
