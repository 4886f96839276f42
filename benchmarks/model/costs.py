"""What one machine was measured to need for one piece of work: everything that the model knows about the gateway."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self, get_type_hints

FORMAT: Final = 1
"""Of the file; grows when a field changes its meaning or goes away."""

EXAMPLE: Final = Path(__file__).with_name("costs.json")
"""The costs that are used unless others are named."""


_HOT: Final = 100.0
"""Sessions that are surely in the caches."""


def tenfolds(sessions: float) -> float:
    """Tell by how many powers of ten there are more sessions than the caches surely hold."""
    return math.log10(max(sessions, _HOT) / _HOT)


class BadFile(Exception):
    """A file is not what it should be; the message names the file, the place and what to do."""


@dataclass(frozen=True)
class Deliver:
    """CPU of a node for updates, in µs.

    Attributes:
        wake: for each turn of its loop in which updates came, however many.
        take: for each update that was read from the grid, whether or not anybody here wants it.
        encode: for each update that somebody here wants: to find out who, and to encode it once for all of them.
        write: for each session that is written to, however many updates that brings.
        packet: for each update to each session.
        cold: added to ``write`` for each tenfold of sessions above 100 that are written to in turn: the more there are,
            the less of them the processor still has in its caches when it comes round again.
    """

    wake: float
    take: float
    encode: float
    write: float
    packet: float
    cold: float

    def write_at(self, sessions: float) -> float:
        """CPU of one write when so many sessions are written in turn."""
        return self.write + self.cold * tenfolds(sessions)

    def written(self, updates: float, reached: float, sessions: float) -> float:
        """Tell how many of the sessions are written to in a turn, if each update reaches that many, taken at random."""
        return sessions * (1.0 - math.pow(max(0.0, 1.0 - reached / sessions), updates))

    def tick(self, updates: float, reached: float, sessions: float | None = None) -> float:
        """CPU of one turn of the loop.

        Args:
            updates: that it brings.
            reached: sessions that each of them goes to.
            sessions: from which these are; None if each update goes to all.
        """
        sessions = reached if sessions is None else sessions
        shared = updates * (self.take + self.encode + reached * self.packet)
        return self.wake + shared + self.written(updates, reached, sessions) * self.write_at(sessions)


@dataclass(frozen=True)
class Step:
    """CPU of one step in the life of a session, in µs, by who uses it."""

    server: float
    redis: float
    haproxy: float


@dataclass(frozen=True)
class Publish:
    """CPU of one confirmed publish, in µs: of the node that was asked, and of Redis."""

    server: float
    redis: float


@dataclass(frozen=True)
class Costs:
    """All costs.

    Attributes:
        deliver: updates on a node.
        publish: one publish.
        follow_redis: CPU of Redis in µs for each update and each node that reads it.
        connect: a new session with three selections.
        reattach: a session that comes back to its node.
        failover: a session that comes to another node.
        idle_server: CPU of a node in µs per second and idle session, pings included.
        idle_redis: CPU of Redis in µs per second and node, for its lease, reaper and reads that find nothing.
        forward: CPU of HAProxy in µs for each message from a node to a client.
        session_node: bytes of a node for an idle session with three selections.
        session_grid: bytes of Redis for it.
        selection_server: CPU of a node in µs for each further selection of a session that comes.
        selection_node: bytes of a node for it.
        selection_grid: bytes of Redis for it.
        session_haproxy: bytes of HAProxy for its connection.
        topic_node: bytes of a node for a value that it keeps a copy of.
        topic_grid: bytes of Redis for a value.
        path: milliseconds from a publisher's schedule to a subscriber when nothing has to wait: the way itself.
    """

    deliver: Deliver
    publish: Publish
    follow_redis: float
    connect: Step
    reattach: Step
    failover: Step
    idle_server: float
    idle_redis: float
    forward: float
    session_node: float
    session_grid: float
    selection_server: float
    selection_node: float
    selection_grid: float
    session_haproxy: float
    topic_node: float
    topic_grid: float
    path: float

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Take costs from JSON.

        Raises:
            BadFile: one is missing, unknown, no number, or below 0.
        """
        costs: Self = _read(cls, content, "costs")
        return costs


@dataclass(frozen=True)
class Point:
    """One measured figure and how the model is tested with it.

    Attributes:
        name: what was measured, such as ``deliver: 500 subscribers, 100 updates/s``.
        figure: which figure of it, such as ``server_cpu``.
        unit: of both values.
        measured: median over the rounds.
        fitted: whether the costs were calculated from it; if not, it was held out.
        parameters: of the work, by name.
    """

    name: str
    figure: str
    unit: str
    measured: float
    fitted: bool
    parameters: Mapping[str, float]


@dataclass(frozen=True)
class Calibration:
    """A file of costs.

    Attributes:
        date: of the measurement.
        commit: that was measured.
        machine: that it was measured on.
        costs: from it.
        points: to test the model with.
    """

    date: str
    commit: str
    machine: Mapping[str, str | int]
    costs: Costs
    points: Sequence[Point]

    def as_json(self) -> str:
        """Write it for people, too."""
        return json.dumps({"format": FORMAT, **_rounded(asdict(self))}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a file that ``calibrate`` has written.

        Raises:
            BadFile: it cannot be read, is no such file, or of another format.
        """
        content = read_json(file)
        if content.get("format") != FORMAT:
            raise BadFile(f"{file}: format {content.get('format')!r} is not {FORMAT}; calibrate anew")
        try:
            return cls(
                date=content["date"],
                commit=content["commit"],
                machine=content["machine"],
                costs=Costs.of(content["costs"]),
                points=[Point(**each) for each in content["points"]],
            )
        except (KeyError, TypeError, BadFile) as problem:
            raise BadFile(f"{file}: {problem}; calibrate anew") from problem


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        BadFile: there is none.
    """
    try:
        content = json.loads(file.read_text())
    except OSError as problem:
        raise BadFile(f"{file}: {problem.strerror}") from problem
    except ValueError as problem:
        raise BadFile(f"{file}: not JSON: {problem}") from problem
    if not isinstance(content, dict):
        raise BadFile(f"{file}: a JSON object was expected, not {type(content).__name__}")
    return content


def _read(kind: type, content: Any, place: str) -> Any:
    """Make a dataclass of numbers, or of such dataclasses, out of JSON."""
    if kind is float:
        if isinstance(content, bool) or not isinstance(content, (int, float)) or not content >= 0:
            raise BadFile(f"{place} must be a number that is not negative, not {content!r}")
        return float(content)
    if not isinstance(content, dict):
        raise BadFile(f"{place} must be an object, not {content!r}")
    types = get_type_hints(kind)
    known = set(types)
    for what, names in (("is missing", known - set(content)), ("is unknown", set(content) - known)):
        if names:
            raise BadFile(f"{place}.{min(names)} {what}")
    return kind(**{name: _read(types[name], content[name], f"{place}.{name}") for name in known})


def _rounded(value: Any) -> Any:
    """Leave four significant digits, more than any measurement here has."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, (list, tuple)) else value
