"""User-defined properties of sessions: their bounds (protocol 9.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gateway.core.wire.errors import InvalidProperties

MAX_PROPERTIES: Final = 64
"""User-defined properties of one session: they travel with every welcome and are stored for every session."""

MAX_PROPERTY_NAME: Final = 64
"""Longest name of a user-defined property, in characters (code points)."""

MAX_PROPERTY_VALUE: Final = 1024
"""Longest value of a user-defined property, in characters (code points)."""

SERVERS_PREFIX: Final = "$"
"""Properties whose names begin with this are the server's."""

_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def is_unicode(text: str) -> bool:
    """Tell whether a text can be passed on: no surrogate in it lacks its other half (protocol 2.6.1)."""
    return text.isascii() or _LONE_SURROGATE.search(text) is None


def check_properties(properties: Mapping[str, str | None]) -> None:
    """Check user-defined properties, or changes of them.

    Args:
        properties: values by name; None for one that is to be removed.

    Raises:
        InvalidProperties: a name or a value is not a string, or not Unicode, a name is the server's, empty or too
            long, a value is too long, or there are too many.
    """
    if len(properties) > MAX_PROPERTIES:
        raise InvalidProperties(f"{len(properties)} properties; at most {MAX_PROPERTIES} are allowed")
    for name, value in properties.items():
        # Applications without a type checker hand in anything.
        if not isinstance(name, str) or not isinstance(value, str | None):  # type: ignore[redundant-expr]
            raise InvalidProperties(f"properties are strings by name, but {name!r} is not, or its value")
        if name.startswith(SERVERS_PREFIX):
            raise InvalidProperties(
                f"{name[:MAX_PROPERTY_NAME]!r} is the server's: names that start with {SERVERS_PREFIX} cannot be set"
            )
        if not 0 < len(name) <= MAX_PROPERTY_NAME:
            raise InvalidProperties(f"names of properties have 1 to {MAX_PROPERTY_NAME} characters")
        if value is not None and len(value) > MAX_PROPERTY_VALUE:
            raise InvalidProperties(
                f"the value of {name!r} has {len(value)} characters; at most {MAX_PROPERTY_VALUE} are allowed"
            )
        if not is_unicode(name) or not is_unicode(value or ""):
            raise InvalidProperties(f"{name!r} or its value is not Unicode: a surrogate in it has no other half")
