"""The values that storms publish: 100 bytes of JSON whose content a receiver can check without having seen them."""

from __future__ import annotations

from typing import Final

VALUE_BYTES: Final = 100
"""Length of the JSON text, quotes included, as in the other cases."""
_QUOTES: Final = 2
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz"
_STEP: Final = 7
"""Has no common divisor with 26, so that fillers of neighbouring sequence numbers differ everywhere."""
_FILLERS: Final = [
    "".join(_ALPHABET[(start + index) % len(_ALPHABET)] for index in range(VALUE_BYTES))
    for start in range(len(_ALPHABET))
]


class CorruptValue(Exception):
    """A value is not what any publisher has sent."""


def make(sequence: int, nanoseconds: int) -> str:
    """Make the value with a sequence number.

    Args:
        sequence: from 1.
        nanoseconds: the publisher's monotonic clock.
    """
    head = f"{sequence} {nanoseconds} "
    return head + _FILLERS[sequence * _STEP % len(_ALPHABET)][: VALUE_BYTES - _QUOTES - len(head)]


def read(value: object) -> tuple[int, int]:
    """Read the sequence number and the publisher's clock.

    Raises:
        CorruptValue: *value* is not exactly what ``make`` makes of these two.
    """
    if isinstance(value, str):
        sequence, _, rest = value.partition(" ")
        nanoseconds = rest.partition(" ")[0]
        if sequence.isdecimal() and nanoseconds.isdecimal():
            found = int(sequence), int(nanoseconds)
            if make(*found) == value:
                return found
    raise CorruptValue(f"{str(value)[:VALUE_BYTES]!r} is not a value that was published")
