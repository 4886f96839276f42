"""Where the next page of a list begins, as a text that callers pass back without looking into it."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass

from gateway.ports.administration import BadParameter

LONGEST_CURSOR = 4096
"""Characters: the longest topic, each character of it escaped, in base64, and half as much again."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a list that is spread over partitions.

    Attributes:
        partition: which one is next.
        step: where in it the grid goes on; None at its beginning.
        after: what was the last of this step that is in an earlier page; None if nothing was.
    """

    partition: int = 0
    step: str | None = None
    after: str | None = None


def to_cursor(place: Place) -> str:
    """Write a place."""
    # As UTF-8 and not in escapes, which would make a long topic too long.
    text = json.dumps([place.partition, place.step, place.after], separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def from_cursor(cursor: str | None, *, partitions: int) -> Place:
    """Read what ``to_cursor`` wrote; None is the beginning.

    Args:
        cursor: what a caller passed.
        partitions: how many there are.

    Raises:
        BadParameter: it is none of ours.
    """
    if cursor is None:
        return Place()
    try:
        if len(cursor) > LONGEST_CURSOR:
            raise ValueError
        read = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        raise _refused() from None
    match read:
        case [int(partition), str() | None as step, str() | None as after] if (
            not isinstance(partition, bool) and 0 <= partition < partitions and _is_text(step) and _is_text(after)
        ):
            return Place(partition, step, after)
    raise _refused()


def _is_text(part: str | None) -> bool:
    """Tell whether it can be sent to the grid: lone surrogates can be written in JSON, but not in UTF-8."""
    return part is None or not any("\ud800" <= character <= "\udfff" for character in part)


def _refused() -> BadParameter:
    return BadParameter("cursor", "this is no cursor of this list; begin again without one")
