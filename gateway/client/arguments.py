"""Arguments of callers without a type checker, who may give anything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ssl import SSLContext
from typing import Final

from gateway.core.client.errors import InvalidProperties, RequestRefused
from gateway.core.wire.publish_packet import FOR_EVER, LONGEST_TTL, SHORTEST_TTL

MOST_SECONDS: Final = 2.0**53
"""Seconds that every reader of JSON understands; what a node grants at most is much less."""

_HEADER_NAME: Final = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
"""A token of RFC 9110, section 5.6.2."""

_NOT_IN_HEADERS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
"""What no value of a header holds: control characters besides the tab, and what is not Unicode."""


def text_of(name: str, given: object, error: type[RequestRefused]) -> str:
    """Return what was given for an argument that is a string."""
    if not isinstance(given, str):
        raise error(f"the {name} is a string, and not {type(given).__name__}")
    return given


def properties_of(given: object) -> dict[str, str | None]:
    """Return what was given as properties, likewise."""
    if not isinstance(given, Mapping):
        raise InvalidProperties(f"the properties are a mapping of strings by name, and not {type(given).__name__}")
    return dict(given)


def _number(given: object) -> float | None:
    """Return a number; None for anything else, and for True and False, which Python takes for numbers."""
    return given if isinstance(given, int | float) and not isinstance(given, bool) else None


def ttl_of(given: object) -> float | None:
    """Return what was given as the time to live of a value: seconds, 0 for ever, None as the topic has it.

    Raises:
        ValueError: it is nothing of the kind.
    """
    if given is None:
        return None
    seconds = _number(given)
    if seconds is None or (seconds != FOR_EVER and not SHORTEST_TTL <= seconds <= LONGEST_TTL):
        raise ValueError(f"ttl is 0, or seconds from {SHORTEST_TTL} to {LONGEST_TTL}, not {given!r}")
    return float(seconds)


def seconds_of(name: str, given: object) -> float:
    """Return what was given as a length of time that a node keeps: JSON has no number for one without an end.

    Raises:
        ValueError: it is no number of seconds, or has no end.
    """
    seconds = _number(given)
    if seconds is None or not 0 <= seconds <= MOST_SECONDS:
        raise ValueError(f"{name} is a number of seconds from 0, and not infinite, not {given!r}")
    return float(seconds)


def optional_seconds_of(name: str, given: object) -> float | None:
    """Return what was given as such a length of time, if any was; see ``seconds_of``."""
    return None if given is None else seconds_of(name, given)


def ages_of(delay: object, expires: object) -> tuple[float, float | None]:
    """Return what was given as the delay of a message, and as when it expires; see ``seconds_of``."""
    return seconds_of("delay", delay), optional_seconds_of("expires", expires)


def check_times(**times: float | None) -> None:
    """Check arguments that are seconds, by their names; None is as good.

    Raises:
        ValueError: one of them is no number above 0.
    """
    for name, seconds in times.items():
        if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):  # type: ignore[redundant-expr]
            raise ValueError(f"{name} is a number of seconds above 0, not {seconds!r}")


def headers_of(given: object) -> dict[str, str]:
    """Return what was given as the headers of an upgrade.

    Raises:
        ValueError: they cannot be sent; what is wrong is named, but not what the header holds, which may be secret.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ValueError(f"the headers are a mapping of strings, and not {type(given).__name__}")  # noqa: TRY004
    for name, value in given.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"a header cannot be called {name!r}")
        if not isinstance(value, str):
            raise ValueError(f"the header {name} is a string, and not {type(value).__name__}")  # noqa: TRY004
        if _NOT_IN_HEADERS.search(value):
            raise ValueError(f"the header {name} has control characters, or is not Unicode")
    return dict(given)


def tls_of(given: object) -> SSLContext | None:
    """Return what was given for TLS.

    Raises:
        ValueError: it is neither a context nor None.
    """
    if given is None or isinstance(given, SSLContext):
        return given
    raise ValueError(f"ssl is an SSLContext, or None for the system's trust store, and not {given!r}")
