"""What an answer of a receiver means, and when a request is sent again."""

from __future__ import annotations

from email.utils import mktime_tz, parsedate_tz
from enum import Enum
from typing import Final

FIRST: Final = 1.0
"""Seconds before a request that failed is sent again; doubled each time."""

LONGEST: Final = 300.0
"""Seconds between two attempts at most: within so much a receiver that is back gets what it missed."""

LONGEST_ASKED: Final = 3600.0
"""Seconds that a receiver may ask to be left alone: more would be as good as off, which is for its operator to say."""

MOST_DOUBLED: Final = 16
"""Attempts after which doubling goes no further: far above the bound."""

GONE: Final = 410
TOO_LARGE: Final = 413
SUCCESS: Final = range(200, 300)
"""Status codes."""


class Verdict(Enum):
    """What an answer means."""

    DELIVERED = "delivered"
    AGAIN = "again"
    SMALLER = "smaller"
    """The request is too large for the receiver; the next one is half as large."""
    GONE = "gone"
    """The receiver wants nothing any more; the hook is suspended until somebody says otherwise."""


def judge(status: int) -> Verdict:
    """Tell what a status code means. Redirects are failures: they are not followed."""
    if status in SUCCESS:
        return Verdict.DELIVERED
    if status == GONE:
        return Verdict.GONE
    if status == TOO_LARGE:
        return Verdict.SMALLER
    return Verdict.AGAIN


def pause(failures: int, chance: float, asked: float | None = None) -> float:
    """Tell for how many seconds to wait.

    Args:
        failures: in a row, from 1.
        chance: a number in [0, 1), so that receivers of many clusters do not get them all at once.
        asked: seconds that the receiver asked for; None if it did not.
    """
    bound = min(FIRST * 2.0 ** min(failures - 1, MOST_DOUBLED), LONGEST)
    return max(bound * (0.5 + chance / 2), min(asked or 0.0, LONGEST_ASKED))


def read_retry_after(text: str | None, now: float) -> float | None:
    """Read the header ``Retry-After``: seconds, or a date.

    Args:
        text: of the header; None if there was none.
        now: seconds since 1970.

    Returns:
        Seconds from now; None if it says nothing that can be read.
    """
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdecimal():
        # Of a number with any number of digits no more is needed than that it is large.
        return min(float(text[:18]), LONGEST_ASKED)
    try:
        date = parsedate_tz(text)
        return None if date is None else min(max(0.0, mktime_tz(date) - now), LONGEST_ASKED)
    except (ValueError, OverflowError, TypeError):
        return None
