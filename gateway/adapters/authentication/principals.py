"""What a principal may be called, and what roles, properties and ends of credentials may look like."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final

LONGEST_PRINCIPAL: Final = 128
"""Characters: room for an e-mail address or a distinguished name; it is stored with every session."""

_FORBIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control and format characters, lone surrogates, line and paragraph separators.

They can forge lines of logs, reverse the direction of text, or cannot be encoded.
"""


def is_valid_principal(principal: str) -> bool:
    """Tell whether *principal* may be the name of somebody: not empty, not too long, nothing invisible in it."""
    return 0 < len(principal) <= LONGEST_PRINCIPAL and principal == principal.strip() and is_visible(principal)


def is_visible(text: str) -> bool:
    """Tell whether *text* has no characters that forge, hide or cannot be encoded."""
    if text.isascii():
        return text.isprintable()
    return not any(unicodedata.category(character) in _FORBIDDEN_CATEGORIES for character in text)


MOST_ROLES: Final = 64
"""Of a principal: all of them are stored with every session."""

LONGEST_ROLE: Final = 128
"""Characters: as a principal, which some identity providers make the names of groups of."""

MOST_PROPERTIES: Final = 32
"""Of a principal: all of them go into every welcome."""

LONGEST_NAME: Final = 48
"""Characters of a property's name: with the ``$principal.`` before it, not more than other properties may have."""

LONGEST_VALUE: Final = 1024
"""Characters of a property's value, as of those that clients set (protocol 9.3)."""

LATEST: Final = 253_402_300_800.0
"""Seconds since 1970 at the end of the year 9999, which is as far as most clocks and calendars go. A later time is one
in milliseconds, or nonsense, and must not reach a timer."""

_NAME: Final = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{LONGEST_NAME - 1}}}", re.ASCII)


def check_roles(roles: Iterable[str]) -> frozenset[str]:
    """Check names of roles.

    Raises:
        ValueError: one is empty, too long, or has blanks, commas or invisible characters, or there are too many.
    """
    found = frozenset(roles)
    if len(found) > MOST_ROLES:
        raise ValueError(f"there are {len(found)} roles; at most {MOST_ROLES} are allowed")
    for role in found:
        if not 0 < len(role) <= LONGEST_ROLE or not is_visible(role) or "," in role or any(map(str.isspace, role)):
            raise ValueError(
                f"a role has 1 to {LONGEST_ROLE} visible characters, and neither blanks nor commas among them"
            )
    return found


def check_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Check properties of a principal.

    Raises:
        ValueError: a name has other characters than letters, digits and ``_ . -`` or is too long, a value is too long
            or has invisible characters, or there are too many.
    """
    if len(properties) > MOST_PROPERTIES:
        raise ValueError(f"there are {len(properties)} properties; at most {MOST_PROPERTIES} are allowed")
    for name, value in properties.items():
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"the name of a property has 1 to {LONGEST_NAME} letters, digits and any of _ . -")
        if len(value) > LONGEST_VALUE or not is_visible(value):
            raise ValueError(f"the value of {name!r} has more than {LONGEST_VALUE} characters, or invisible ones")
    return dict(properties)


def check_end(value: Any, name: str) -> float:
    """Check a time at which credentials end.

    Args:
        value: whatever was given.
        name: of what was given, for the message.

    Returns:
        Seconds since 1970.

    Raises:
        ValueError: it is no number, or not a time from 1970 to 9999.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is not a number")  # noqa: TRY004 - what was given is wrong, and no argument
    # Compared before it is converted: a whole number may be longer than any float. Not-a-number is in no range.
    if not 0 <= value < LATEST:
        raise ValueError(f"{name} is not a time: seconds since 1970 are meant, before the year 10000")
    return float(value)
