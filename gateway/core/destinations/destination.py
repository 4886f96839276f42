"""A destination: which paths it is about, what they are, who says so; and its encoding in the grid.

**The most specific one counts.** Several destinations can match one path. Of these counts the one that comes first by
``rank``:

1. the one with more literal segments (``log/audit/**`` before ``log/**``);
2. of these the one with more ``*`` (``log/*/*`` before ``log/**``);
3. of these the one with fewer ``**`` (``log/audit`` before ``log/audit/**``);
4. of these the one whose literal segments are further to the left (``log/*`` before ``*/audit``);
5. of these the one whose text comes first, by code points.

If every path of one selector is matched by another one, too, the narrower comes first: the wider can be laid along
any of the narrower's paths, its literals onto literals and its ``*`` onto segments that are no ``**``, so it has no
more literals and, if as many, no more ``*``. If it has as many of these as well, both have the same shortest paths,
hence the same literals in the same places, and each ``**`` of the narrower lies in a run in which the wider has one.

**Two may say what a path is**: the file of the nodes' configuration, and administrators. They are kept apart, by
``Origin``. Where both name the same selector, the administrators' word counts; once it is taken back, that of the file
counts again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import Final, TypeAlias

import orjson

from gateway.core.destinations.limits import (
    LIMITS,
    InvalidDestination,
    Kind,
    Limits,
    PresenceLimits,
    kind_of,
    limit_fields,
    read_kind,
    read_limits,
)
from gateway.core.destinations.presence import MOST_TREE_BYTES, MOST_TREE_SEGMENTS, pattern_of
from gateway.core.topics.selectors import ANY, ONE, Selector, parse_selector
from gateway.core.topics.topics import SYSTEM_SIGN, is_reserved, shown
from gateway.core.wire.errors import InvalidSelector

MAX_DESTINATIONS: Final = 1_000
"""Most destinations of a cluster, of both origins together. It bounds what a new node reads, what each node holds (some
hundred bytes each), and the cost of finding the one that counts for a path: a third of a millisecond with the worst
selectors that can be made up, once per path."""

ENCODING_VERSION: Final = 1
"""Version of the encoding in the grid. A field that older nodes can do without does not raise it: they ignore it. A
node that meets a higher version leaves the destination out and says so."""

MAX_ENCODED_BYTES: Final = 16 * 1024
"""Bytes beyond which what is held of a destination is none, and is not parsed: all limits take a hundredth of it."""

_FIELDS: Final = ("selector", "path", "kind")
"""What describes a destination besides its limits."""


class UnreadableDestination(ValueError):
    """An entry of the grid is no destination that this release knows; the message says why."""


class Origin(StrEnum):
    """Who says what a path is."""

    ADMINISTRATOR = "administrator"
    """Somebody, through the admin API. Counts where both name the same selector."""
    FILE = "file"
    """The file that the setting ``destinations`` names."""


Rank: TypeAlias = tuple[int, int, int, tuple[int, ...], str]
"""Comes before that of a less specific selector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """What the paths of a selector are; make one with ``read_destination``.

    Attributes:
        selector: which paths. Of a queue it is the one path.
        limits: None for a plain value.
        origin: who says so.
        made: when it was said, in seconds since 1970. Of two that say it of the same selector with the same origin, the
            later one counts.
    """

    selector: Selector
    limits: Limits
    origin: Origin
    made: float = 0.0

    @property
    def kind(self) -> Kind:
        """What the paths are."""
        return kind_of(self.limits)

    @property
    def name(self) -> str:
        """What tells it from all others."""
        return name_of(self.origin, self.selector)

    @property
    def fields(self) -> dict[str, float | str | bool | None]:
        """What ``read_destination`` takes: selector or path, kind and all limits."""
        place = "path" if self.kind is Kind.QUEUE else "selector"
        return {place: self.selector.text, "kind": self.kind.value, **limit_fields(self.limits)}

    def says_the_same(self, other: Destination) -> bool:
        """Tell whether both say the same, whenever they were made."""
        return self.name == other.name and self.limits == other.limits


def name_of(origin: Origin, selector: Selector) -> str:
    """Name the destination of a selector that *origin* describes; there is at most one of this name."""
    return name_prefix(origin) + selector.text


def name_prefix(origin: Origin) -> str:
    """Tell what the names begin with of all that *origin* describes."""
    return f"{origin.value} "


def parse_name(name: str) -> tuple[Origin, Selector]:
    """Take a name apart; see ``name_of``.

    Raises:
        UnreadableDestination: it is none.
    """
    origin, _, text = name.partition(" ")
    try:
        return Origin(origin), parse_selector(text)
    except (ValueError, InvalidSelector) as error:
        raise UnreadableDestination(f"{shown(name)} is no name of a destination: {error}") from None


def rank(selector: Selector) -> Rank:
    """Return what orders selectors from the most specific to the least; see the module."""
    literals = tuple(place for place, each in enumerate(selector.segments) if each not in {ONE, ANY})
    ones = selector.segments.count(ONE)
    anys = selector.segments.count(ANY)
    return -len(literals), -ones, anys, literals, selector.text


def read_destination(
    given: Mapping[str, object], *, origin: Origin, made: float = 0.0, kinds: Collection[Kind] = frozenset(Kind)
) -> Destination:
    """Make a destination of its description.

    Args:
        given: ``kind``; ``selector``, or ``path`` for a queue; and limits by name, as JSON has them.
        origin: who describes it.
        made: when, in seconds since 1970.
        kinds: that it can be of.

    Raises:
        InvalidDestination: something is missing, unknown or does not fit.
    """
    kind = read_kind(given.get("kind"), kinds)
    limits = read_limits(kind, {name: value for name, value in given.items() if name not in _FIELDS})
    selector = read_place(kind, given)
    if isinstance(limits, PresenceLimits) and limits.presence and not pattern_of(selector):
        raise InvalidDestination(
            "presence",
            "does not go with this selector, as it is not known where the path of a tree ends, or a tree is too long",
            'it to one such as "rooms/*/**", with a "**" in the last place alone, '
            f"and at most {MOST_TREE_SEGMENTS} segments and {MOST_TREE_BYTES} bytes in front of it",
        )
    return Destination(selector=selector, limits=limits, origin=origin, made=made)


def read_place(kind: Kind, given: Mapping[str, object]) -> Selector:
    """Read which paths a destination is about; see ``read_destination``.

    Raises:
        InvalidDestination: it is missing, no selector or path, or a place of the system.
    """
    field, other, example = (
        ("path", "selector", 'a path such as "jobs/render"')
        if kind is Kind.QUEUE
        else ("selector", "path", 'a selector such as "log/**"')
    )
    if other in given:
        raise InvalidDestination(other, f"does not belong to a {kind.value}", f"{example} as {field}")
    text = given.get(field)
    if text is None:
        raise InvalidDestination(field, "is missing", example)
    if not isinstance(text, str):
        raise InvalidDestination(field, "is not a text", example)
    try:
        selector = parse_selector(text)
    except InvalidSelector as error:
        raise InvalidDestination(field, f"is none: {error}", example) from None
    check_place(kind, selector)
    return selector


def check_place(kind: Kind, selector: Selector) -> None:
    """See that a selector can be of a destination of this kind.

    Raises:
        InvalidDestination: it names more than one queue, or a place of the system.
    """
    field = "path" if kind is Kind.QUEUE else "selector"
    if kind is Kind.QUEUE and not selector.literal:
        raise InvalidDestination(field, "has a wildcard, but a queue is one path")
    if is_reserved(selector.text):
        raise InvalidDestination(field, f"begins with {SYSTEM_SIGN!r}, as only the system's do")


# --- In the grid --------------------------------------------------------------------------------------------------


def encode_destination(destination: Destination) -> bytes:
    """Encode what the grid holds of a destination beside its name.

    Returns:
        When it was made, in seconds since 1970, a blank, and JSON with the version of the encoding, the kind and all
        limits. Two that say the same differ in what stands in front of the blank alone.
    """
    described = {
        "v": ENCODING_VERSION,
        "kind": destination.kind.value,
        **limit_fields(destination.limits),
    }
    return f"{destination.made!r} ".encode() + orjson.dumps(described)


def decode_destination(name: str, data: bytes) -> Destination:
    """Read what ``encode_destination`` has written, here or at a node of another release.

    Limits that this release does not know are ignored. A release with wider bounds raises the version.

    Args:
        name: of the destination.
        data: what the grid holds.

    Raises:
        UnreadableDestination: it is damaged, of a later version, of a kind that this release does not know, or beyond
            the bounds.
    """
    if len(data) > MAX_ENCODED_BYTES:
        raise UnreadableDestination(f"an entry of {len(data)} bytes is no destination")
    origin, selector = parse_name(name)
    when, _, described = data.partition(b" ")
    try:
        made, found = float(when), orjson.loads(described)
    except ValueError as error:
        raise UnreadableDestination(f"an entry is no time and JSON: {error}") from None
    if not isfinite(made) or not isinstance(found, dict):
        raise UnreadableDestination("an entry is no time and JSON object")
    version = found.pop("v", None)
    if version != ENCODING_VERSION:
        raise UnreadableDestination(f"an entry has version {version!r}, and this release reads {ENCODING_VERSION}")
    try:
        kind = Kind(found.get("kind", ""))
        known = {each.name for each in LIMITS[kind]}
        limits = read_limits(kind, {limit: value for limit, value in found.items() if limit in known})
        check_place(kind, selector)
    except (InvalidDestination, ValueError) as error:
        raise UnreadableDestination(f"an entry cannot be read: {error}") from None
    return Destination(selector=selector, limits=limits, origin=origin, made=made)
