"""Arguments of callers without a type checker, who may give anything."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.core.client.errors import InvalidProperties, RequestRefused
from gateway.core.wire.publish_packet import FOR_EVER, LONGEST_TTL, SHORTEST_TTL


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


def ttl_of(given: object) -> float | None:
    """Return what was given as the time to live of a value: seconds, 0 for ever, None as the topic has it.

    Raises:
        ValueError: it is nothing of the kind.
    """
    if given is None:
        return None
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    seconds = float(given) if isinstance(given, int | float) and is_number else -1.0
    if seconds != FOR_EVER and not SHORTEST_TTL <= seconds <= LONGEST_TTL:
        raise ValueError(f"ttl is 0, or seconds from {SHORTEST_TTL} to {LONGEST_TTL}, not {given!r}")
    return seconds


def check_times(**times: float | None) -> None:
    """Check arguments that are seconds, by their names; None is as good.

    Raises:
        ValueError: one of them is no number above 0.
    """
    for name, seconds in times.items():
        if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):  # type: ignore[redundant-expr]
            raise ValueError(f"{name} is a number of seconds above 0, not {seconds!r}")
