"""The kinds of destinations and their limits, declared once: files, the admin API and the pages read them here.

```text
value      ValueLimits: nothing is kept but the newest value, and that for a time if it ends
history    HistoryLimits: events are kept for a count, an age and bytes
queue      QueueLimits: how much a queue holds, how often a message is delivered, what becomes of it else
```
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Final, TypeAlias

from gateway.core.topics.topics import shown
from gateway.core.wire.errors import GatewayError
from gateway.core.wire.publish_packet import LONGEST_TTL, SHORTEST_TTL

SECONDS_PER_DAY: Final = 86_400

LONGEST_AGE: Final = 366 * SECONDS_PER_DAY
"""Longest time, in seconds, that a limit can name: a year. What is kept longer belongs into a database."""

LONGEST_PAUSE: Final = SECONDS_PER_DAY
"""Longest time, in seconds, between two deliveries of a message. A consumer that needs longer is better served by
settling the message and sending another one."""

LEAST_BYTES: Final = 4 * 1024
"""Least bytes that a limit can name: below, the node keeps more about an event than of it."""


class InvalidDestination(GatewayError):
    """A destination cannot be as it is described; the message names what is wrong and what is allowed.

    Attributes:
        field: what of it is wrong, such as ``count``.
        wrong: what is wrong with it, to be put behind its name.
        allowed: what to give instead; may be empty.
    """

    def __init__(self, field: str, wrong: str, allowed: str = "") -> None:
        super().__init__(f"{field} {wrong}" + (f"; give {allowed}" if allowed else ""))
        self.field = field
        self.wrong = wrong
        self.allowed = allowed


class Kind(StrEnum):
    """What a path is."""

    VALUE = "value"
    """A topic whose newest value is kept and nothing else; what every topic is if nobody says otherwise."""
    HISTORY = "history"
    """A topic whose events are kept, so that a subscriber can begin at an earlier one."""
    QUEUE = "queue"
    """Messages, each of which goes to one consumer."""


DECLARABLE: Final = frozenset(Kind)
"""Kinds that can be described in this release."""


class WhenFull(StrEnum):
    """What a full queue does with the next message."""

    REFUSE = "refuse"
    """The sender is told that the queue is full."""
    DROP_OLDEST = "drop_oldest"
    """The oldest waiting message becomes a dead letter."""


class Unit(StrEnum):
    """What a limit counts."""

    NUMBER = "number"
    SECONDS = "seconds"
    BYTES = "bytes"
    SWITCH = "switch"
    CHOICE = "choice"
    NAMES = "names"


MOST_NAMES: Final = 16
"""Names of properties that a limit lists."""

LONGEST_NAME: Final = 64 + len("$principal.")
"""Characters of one of them: as long as properties are, those that the credentials vouch for included."""

MOST_PRESENCE_MEMBERS: Final = 100_000
"""Members of one tree of which there are topics: some 40 MB of the grid, and as much of each node that watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit of a kind of destination, for whoever reads, checks or explains it.

    Attributes:
        name: as files and the admin API write it.
        unit: what it counts.
        low: least value; of numbers, seconds and bytes.
        high: greatest value.
        optional: whether it can be None, which means without limit.
        choices: the texts that it can be, of a choice.
        meaning: for people.
    """

    name: str
    unit: Unit
    low: float = 0
    high: float = 0
    optional: bool = False
    choices: tuple[str, ...] = ()
    meaning: str

    @property
    def accepts(self) -> str:
        """Say what can be given, as in "a whole number between 1 and 5"."""
        if self.unit is Unit.SWITCH:
            return "true or false"
        if self.unit is Unit.CHOICE:
            return " or ".join(f'"{each}"' for each in self.choices)
        if self.unit is Unit.NAMES:
            return f'up to {MOST_NAMES} names with commas between them, such as "name,status"'
        noun = {Unit.NUMBER: "a whole number", Unit.SECONDS: "seconds", Unit.BYTES: "bytes"}[self.unit]
        return f"{noun} between {self.low:,.10g} and {self.high:,.10g}"

    def read(self, value: object) -> float | str | bool | None:
        """Check a value as JSON has it.

        Returns:
            The value; a whole number as an ``int``.

        Raises:
            InvalidDestination: it does not fit.
        """
        if value is None and self.optional:
            return None
        if self.unit is Unit.SWITCH:
            if isinstance(value, bool):
                return value
            raise InvalidDestination(self.name, "is not true or false", self.accepts)
        if self.unit is Unit.CHOICE:
            if isinstance(value, str) and value in self.choices:
                return value
            raise InvalidDestination(self.name, "is none of the values that it can have", self.accepts)
        if self.unit is Unit.NAMES:
            return self._names(value)
        return self._amount(value)

    def _names(self, value: object) -> str:
        if not isinstance(value, str):
            raise InvalidDestination(self.name, "is not a text", self.accepts)
        names = [each.strip() for each in value.split(",")] if value.strip() else []
        if len(names) > MOST_NAMES or not all(0 < len(each) <= LONGEST_NAME and each.isprintable() for each in names):
            raise InvalidDestination(self.name, "is no list of names", self.accepts)
        return ",".join(dict.fromkeys(names))

    def _amount(self, value: object) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
            raise InvalidDestination(self.name, "is not a number", self.accepts)
        if self.unit is not Unit.SECONDS:
            if value % 1:
                raise InvalidDestination(self.name, "is not a whole number", self.accepts)
            value = int(value)
        if value < self.low:
            raise InvalidDestination(self.name, "is too small", self.accepts)
        if value > self.high:
            raise InvalidDestination(self.name, "is too large", self.accepts)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class PresenceLimits:
    """Whether trees of topics tell who has subscribed to them (``presence``).

    Attributes:
        presence: whether they do.
        presence_members: members of one tree of which there are topics; what is beyond is counted only.
        presence_properties: names of the properties that are told of a member, with commas between them; those that
            the credentials vouch for begin with ``$principal.``.
    """

    presence: bool = False
    """Nobody is shown to others unless an operator says so."""
    presence_members: int = 1_000
    """A list that a person can look through; a tree that fills up makes as many events for each who watches it."""
    presence_properties: str = ""
    """The principal alone is told."""

    @property
    def shown(self) -> tuple[str, ...]:
        """The names of the properties that are told."""
        return tuple(self.presence_properties.split(",")) if self.presence_properties else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLimits(PresenceLimits):
    """How long the value of one topic is there.

    Attributes:
        ttl: seconds after which a value ends, unless its publisher says otherwise; None for never.
    """

    ttl: float | None = None
    """A value is what counts until there is another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLimits(PresenceLimits):
    """How many events of one topic are kept: the oldest go as soon as one of the limits is passed.

    Attributes:
        count: most events.
        age: longest time that one is kept, in seconds.
        bytes: most bytes of all of them, in the grid. The newest event is kept whatever its size.
        ttl: as of ``ValueLimits``; the end of a value is an event, too.
    """

    count: int = 1_000
    """A page of any list, some minutes of a busy topic; 0.23 MB in the grid with values of 200 bytes."""
    age: float = SECONDS_PER_DAY
    """Whoever was away for a night goes on where it stopped."""
    bytes: int = 1024**2
    """Of a thousand topics with history that are all full: 1 GiB, which a usual Redis has."""
    ttl: float | None = None
    """As of ``ValueLimits``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """What a queue holds, and what becomes of messages that nobody accepts.

    Attributes:
        count: most messages that are waiting, delayed or held by consumers.
        bytes: most bytes of them, in the grid.
        full: what becomes of the next message when one of these is reached.
        deliveries: how often a message is delivered before it becomes a dead letter.
        redelivery_delay: seconds between a delivery that failed and the next one.
        ack_within: seconds in which a consumer settles a message; after that it is another's. None: as long as the
            consumer's session lives.
        expires: seconds after which a message that nobody has taken becomes a dead letter, unless its sender says
            otherwise; None for never.
        exclusive: whether one consumer gets all messages, as long as it stays, and the next one follows it.
        dead_count: most dead letters that are kept; the oldest go.
        dead_age: seconds that a dead letter is kept.
    """

    count: int = 100_000
    """Some 40 MB in the grid with bodies of 200 bytes: hours of a usual queue without its consumers."""
    bytes: int = 64 * 1024**2
    """Sixteen full queues: 1 GiB, which a usual Redis has."""
    full: WhenFull = WhenFull.REFUSE
    """Who sends learns of it, and nothing that was promised goes away."""
    deliveries: int = 5
    """A message that fails five times fails for itself, not because of where it was delivered."""
    redelivery_delay: float = 0.0
    """At once: another consumer may well succeed."""
    ack_within: float | None = None
    """Consumers whose session lives are trusted."""
    expires: float | None = None
    """Work does not go away by itself."""
    exclusive: bool = False
    """Consumers share the work."""
    dead_count: int = 10_000
    """Enough to see what is wrong, and a tenth of what the queue holds."""
    dead_age: float = 30 * SECONDS_PER_DAY
    """A month, so that nobody has to look at them on a holiday."""


Limits: TypeAlias = HistoryLimits | QueueLimits | ValueLimits
"""The limits of a destination."""

_TTL: Final = Limit(
    name="ttl",
    unit=Unit.SECONDS,
    low=SHORTEST_TTL,
    high=LONGEST_TTL,
    optional=True,
    meaning="time after which a value ends, unless its publisher says otherwise",
)

_PRESENCE: Final = (
    Limit(name="presence", unit=Unit.SWITCH, meaning="whether it is told who has subscribed to these trees of topics"),
    Limit(
        name="presence_members",
        unit=Unit.NUMBER,
        low=0,
        high=MOST_PRESENCE_MEMBERS,
        meaning="most members of a tree that are listed; more are counted only",
    ),
    Limit(
        name="presence_properties",
        unit=Unit.NAMES,
        meaning="properties that are told of a member, besides its principal",
    ),
)

VALUE_LIMITS: Final = (_TTL, *_PRESENCE)
"""Of each topic without history."""

HISTORY_LIMITS: Final = (
    Limit(name="count", unit=Unit.NUMBER, low=1, high=1_000_000, meaning="most events kept of one topic"),
    Limit(name="age", unit=Unit.SECONDS, low=1, high=LONGEST_AGE, meaning="longest time that an event is kept"),
    Limit(
        name="bytes",
        unit=Unit.BYTES,
        low=LEAST_BYTES,
        high=1024**3,
        meaning="most bytes of the kept events of one topic; the newest is kept whatever its size",
    ),
    _TTL,
    *_PRESENCE,
)
"""Of each topic with history. A million events or 1 GiB of one topic still go through one Redis command at a time."""

QUEUE_LIMITS: Final = (
    Limit(
        name="count",
        unit=Unit.NUMBER,
        low=1,
        high=10_000_000,
        meaning="most messages that are waiting, delayed or held by consumers",
    ),
    Limit(name="bytes", unit=Unit.BYTES, low=LEAST_BYTES, high=16 * 1024**3, meaning="most bytes of these messages"),
    Limit(
        name="full",
        unit=Unit.CHOICE,
        choices=tuple(WhenFull),
        meaning="what a full queue does with the next message: refuse it, or make the oldest one a dead letter",
    ),
    Limit(
        name="deliveries",
        unit=Unit.NUMBER,
        low=1,
        high=1_000,
        meaning="deliveries of a message before it becomes a dead letter",
    ),
    Limit(
        name="redelivery_delay",
        unit=Unit.SECONDS,
        low=0,
        high=LONGEST_PAUSE,
        meaning="time between a delivery that failed and the next one",
    ),
    Limit(
        name="ack_within",
        unit=Unit.SECONDS,
        low=1,
        high=LONGEST_PAUSE,
        optional=True,
        meaning="time in which a consumer settles a message before it goes to another one",
    ),
    Limit(
        name="expires",
        unit=Unit.SECONDS,
        low=1,
        high=LONGEST_AGE,
        optional=True,
        meaning="time after which a waiting message becomes a dead letter, unless its sender says otherwise",
    ),
    Limit(
        name="exclusive",
        unit=Unit.SWITCH,
        meaning="one consumer gets all messages as long as it stays, and the next one follows it",
    ),
    Limit(name="dead_count", unit=Unit.NUMBER, low=0, high=1_000_000, meaning="most dead letters that are kept"),
    Limit(name="dead_age", unit=Unit.SECONDS, low=1, high=LONGEST_AGE, meaning="time that a dead letter is kept"),
)
"""Of each queue. Ten million messages or 16 GiB are what one Redis holds; a queue is not spread over several."""

LIMITS: Final[Mapping[Kind, tuple[Limit, ...]]] = {
    Kind.VALUE: VALUE_LIMITS,
    Kind.HISTORY: HISTORY_LIMITS,
    Kind.QUEUE: QUEUE_LIMITS,
}
"""All limits, by kind."""

_DEFAULTS: Final[Mapping[Kind, Limits]] = {
    Kind.VALUE: ValueLimits(),
    Kind.HISTORY: HistoryLimits(),
    Kind.QUEUE: QueueLimits(),
}


def read_kind(given: object, kinds: Collection[Kind] = frozenset(Kind)) -> Kind:
    """Read one of *kinds*.

    Raises:
        InvalidDestination: it is missing, or none of those.
    """
    allowed = " or ".join(f'"{each.value}"' for each in Kind if each in kinds)
    if given is None:
        raise InvalidDestination("kind", "is missing", allowed)
    if not isinstance(given, str) or given not in kinds:
        raise InvalidDestination("kind", "is none that is known", allowed)
    return Kind(given)


def read_limits(kind: Kind, given: Mapping[str, object]) -> Limits:
    """Make the limits of a destination; what is not given is as by default.

    Args:
        kind: of the destination.
        given: limits by name, as JSON has them: seconds and bytes as numbers.

    Raises:
        InvalidDestination: a limit is unknown to this kind, or its value does not fit.
    """
    known = {each.name: each for each in LIMITS[kind]}
    for name in given:
        if name not in known:
            allowed = f"any of {', '.join(known)}" if known else "none"
            raise InvalidDestination(shown(name), f"is no limit of a {kind.value}", allowed)
    values = {name: known[name].read(value) for name, value in given.items()}
    if kind is Kind.HISTORY:
        return HistoryLimits(**values)  # type: ignore[arg-type]  # each was read by its own ``Limit``
    if kind is Kind.QUEUE:
        if "full" in values:
            values["full"] = WhenFull(str(values["full"]))
        return QueueLimits(**values)  # type: ignore[arg-type]  # as above
    return ValueLimits(**values)  # type: ignore[arg-type]  # as above


def kind_of(limits: Limits) -> Kind:
    """Tell of which kind a destination with these limits is."""
    if isinstance(limits, ValueLimits):
        return Kind.VALUE
    return Kind.HISTORY if isinstance(limits, HistoryLimits) else Kind.QUEUE


_LEFT_OUT: Final = {("ttl", None), *((each.name, each.default) for each in fields(PresenceLimits))}
"""Names and values that mean what they mean where they are missing."""


def limit_fields(limits: Limits) -> dict[str, float | str | bool | None]:
    """Return limits by name, as JSON has them and ``read_limits`` takes them.

    What ends nothing, and shows nobody, is left out: as nodes of earlier releases write it, so that they and those of
    today say the same.
    """
    return {name: value for name, value in asdict(limits).items() if (name, value) not in _LEFT_OUT}


def default_of(kind: Kind, name: str) -> float | str | bool | None:
    """Return the default of a limit.

    Raises:
        KeyError: this kind has no such limit.
    """
    defaults = _DEFAULTS[kind]
    if name not in {each.name for each in fields(defaults)}:
        raise KeyError(name)
    return getattr(defaults, name)  # type: ignore[no-any-return]
