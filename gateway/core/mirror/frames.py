"""A frame of the log: all that has changed at a live node since the frame before (docs/reference/node-links.md).

```text
version u16 │ record (``byte_form``): an object with the fields of ``FIELDS``, and bodies
```

A session is named by its *slot*, a number that the log gives it. The rows:

* ``runs``: the number of a run, and its row as in an export;
* ``whole``: slot, body with the export of a session, epoch, and its cut;
* ``steps``: what was done with packets, in order: the step, its argument, for which slots (a list, or the place of a
  body of u32), and those slots among them for which it was not;
* ``changes``: of one slot each, as in ``Changes``; ``acked``: slots, and up to which packet each has acknowledged;
* ``gone``: slots of which nothing is to be kept;
* ``cuts``: by partition, the event up to which sessions have been handed all; null if that cannot be told any more.

The steps: a run is *numbered* that did not wait; it is *pushed* into the outbox, as it has to wait; so many packets are
*taken* out of that and numbered; from now on it is *folded*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct, unpack
from typing import Final, NamedTuple

import orjson

from gateway.core.session.export import read_request, write_request
from gateway.core.session.pending import Work
from gateway.core.stream.byte_form import Bodies, Record, write_record
from gateway.core.stream.export import RUNS, read_run, write_run
from gateway.core.stream.runs import Run
from gateway.core.types import Epoch, EventId, JsonValue, RequestNumber
from gateway.core.wire.errors import InvalidExport

VERSION: Final = 4
"""Of a frame; it grows with every change. Who does not know it keeps no copies."""

MIRROR: Final = "mirror"
"""Kind of the records in which frames are sent."""

MIRRORED: Final = "mirrored"
"""Kind of the records by which they are acknowledged."""

FEATURE: Final = f"mirror{VERSION}"
"""What both nodes of a link have to name."""

_VERSION: Final = Struct(">H")

SLOT_BYTES: Final = 4
"""Of a slot in a body."""

NUMBER: Final = "number"
PUSH: Final = "push"
TAKE: Final = "take"
FOLD: Final = "fold"
"""The steps."""

FIELDS: Final = ("log", "sequence", "check", RUNS, "whole", "steps", "changes", "acked", "gone", "cuts")
"""The fields of a frame."""


class Acknowledged(NamedTuple):
    """What a backup says of a log.

    Attributes:
        log: number of the log.
        sequence: the last frame that it has taken in.
        refused: slots of sessions for whose copies it has no room.
        is_broken: whether it has no copies of this log any more, as they were not what they should have been.
    """

    log: int
    sequence: int
    refused: tuple[int, ...] = ()
    is_broken: bool = False

    def encode(self) -> bytes:
        """Write it."""
        return orjson.dumps(
            {"log": self.log, "sequence": self.sequence, "refused": list(self.refused), "broken": self.is_broken}
        )

    @classmethod
    def decode(cls, data: bytes) -> Acknowledged:
        """Read it.

        Raises:
            InvalidExport: it is nothing of the kind.
        """
        try:
            fields = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise InvalidExport(f"what was said of a log is not JSON: {error}") from None
        match fields:
            case {"log": int(log), "sequence": int(sequence), "refused": [*refused], "broken": bool(is_broken)}:
                return cls(log, sequence, tuple([each for each in refused if type(each) is int]), is_broken)
        raise InvalidExport("what was said of a log is of another form")


class SessionCut(NamedTuple):
    """Which of the node's places are those of a session.

    Attributes:
        partitions: the topic partitions in which it has been handed all up to where its node is.
        unfinished: selectors of subscribes of which it has not been handed all current values, by their requests.
    """

    partitions: frozenset[int]
    unfinished: Mapping[RequestNumber, str]


class Changes(NamedTuple):
    """What has changed of one session, besides its packets.

    Attributes:
        slot: of the session.
        counts: id of the last packet that was received, the newest request, and of its answers what is settled and
            refused.
        done: how many of the first pending requests are pending no more.
        asked: requests that are pending since.
        unseen: answers of which it is not known that they have arrived, those that are new.
        rest: whatever else there is to know; None if it is as it was.
        recorded: what the grid holds of it, too, and may lose; None if it is as it was. See ``SessionTap``.
        cut: None if it is as it was.
    """

    slot: int
    counts: tuple[int, int, int, int]
    done: int
    asked: tuple[Work, ...]
    unseen: list[JsonValue]
    rest: list[JsonValue] | None
    recorded: list[JsonValue] | None
    cut: SessionCut | None


class FrameWriter:
    """A frame while it is written.

    Args:
        log: number of the log.
        sequence: of the frame in it, from 1.

    Attributes:
        sequence: as given.
        check: sum of the last packet ids of the sessions that are checked, by which the copy sees whether it agrees.
        checked: their slots, one for each row of ``steps``.
    """

    def __init__(self, log: int, sequence: int) -> None:
        self._log = log
        self.sequence = sequence
        self._bodies = Bodies()
        self._runs: list[JsonValue] = []
        self._whole: list[JsonValue] = []
        self._steps: list[JsonValue] = []
        self._groups: dict[bytes, int] = {}
        self._changes: list[JsonValue] = []
        self._acked: list[JsonValue] = []
        self._gone: list[JsonValue] = []
        self.check = 0
        self.checked: list[int] = []

    def run(self, number: int, run: Run) -> None:
        """Send a run, which has this number from now on."""
        self._runs.append([number, *write_run(run, self._bodies)])

    def whole(self, slot: int, exported: bytes, epoch: Epoch, cut: SessionCut) -> None:
        """Send all of a session."""
        self._whole.append([slot, self._bodies.put(exported), epoch, _write_cut(cut)])

    def step(self, step: str, argument: int, slots: list[int]) -> None:
        """Something was done with packets of sessions, one at least."""
        self.checked.append(slots[self.sequence % len(slots)])
        self._steps.append([step, argument, [*slots], []])

    def step_together(self, step: str, argument: int, slots: bytes, others: list[int]) -> None:
        """Likewise, but for some *others* of them; *slots* as they are written, one at least."""
        place = self._groups.get(slots)
        if place is None:
            place = self._groups[slots] = self._bodies.put(slots)
        self.checked.append(_checked(slots, self.sequence))
        self._steps.append([step, argument, place, [*others]])

    def acked(self, slot: int, packet: int) -> None:
        """A session has acknowledged packets."""
        self._acked += (slot, packet)

    def changed(self, changes: Changes) -> None:
        """Something has changed of a session."""
        slot, counts, done, asked, unseen, rest, recorded, cut = changes
        works: list[JsonValue] = [write_request(work, self._bodies) for work in asked]
        at = None if cut is None else _write_cut(cut)
        self._changes.append([slot, *counts, done, works, unseen, rest, recorded, at])

    def gone(self, slot: int) -> None:
        """Nothing is to be kept of a session."""
        self._gone.append(slot)

    def encode(self, cuts: Mapping[int, EventId | None]) -> bytes | None:
        """Write it, with the places that have changed; None if there is nothing to say."""
        if not (self._steps or self._changes or self._acked or self._whole or self._gone or cuts):
            return None
        fields: dict[str, JsonValue] = {
            "log": self._log,
            "sequence": self.sequence,
            "check": self.check,
            RUNS: self._runs,
            "whole": self._whole,
            "steps": self._steps,
            "changes": self._changes,
            "acked": self._acked,
            "gone": self._gone,
            "cuts": {str(number): event for number, event in cuts.items()},
        }
        return _VERSION.pack(VERSION) + write_record(fields, self._bodies)


def read_frame(data: bytes) -> Record:
    """Read a frame, its fields one by one with the functions below.

    Raises:
        InvalidExport: it is none, or of a version that this release does not know.
    """
    if len(data) < _VERSION.size or (version := _VERSION.unpack_from(data)[0]) != VERSION:
        raise InvalidExport(f"a frame of version {data[: _VERSION.size].hex()}; this release knows {VERSION} only")
    del version
    return Record(data[_VERSION.size :], "frame", FIELDS)


def read_runs(frame: Record) -> list[tuple[int, Run]]:
    """Read the runs of a frame, and their numbers."""
    return [_read_numbered(row, frame) for row in frame.rows(RUNS)]


class Steps(NamedTuple):
    """Something that was done with packets of some sessions.

    Attributes:
        step: what.
        argument: number of the run, or how many packets; nothing for a fold.
        slots: of the sessions.
        checked: slot of the one whose last packet id is checked.
    """

    step: str
    argument: int
    slots: Sequence[int]
    checked: int


def read_steps(row: JsonValue, frame: Record) -> Steps:
    """Read a row of ``steps``."""
    match row:
        case [str(step), int(argument), [*named], []]:
            numbers = [each for each in named if type(each) is int]
            if numbers and len(numbers) == len(named):
                return Steps(step, argument, numbers, numbers[frame.integer("sequence") % len(numbers)])
        case [str(step), int(argument), int(place), [*others]]:
            body = frame.body("steps", place)
            if body and not len(body) % SLOT_BYTES:
                slots: tuple[int, ...] = unpack(f">{len(body) // SLOT_BYTES}I", body)
                if others:
                    left_out = set(others)
                    slots = tuple([slot for slot in slots if slot not in left_out])
                return Steps(step, argument, slots, _checked(body, frame.integer("sequence")))
    return frame.fail("steps", "a list of steps with slots")


def _checked(slots: bytes, sequence: int) -> int:
    """Tell which of many slots is checked in a frame: each of them in turn."""
    at = sequence % (len(slots) // SLOT_BYTES) * SLOT_BYTES
    return int.from_bytes(slots[at : at + SLOT_BYTES])


def read_cut(value: JsonValue, frame: Record, name: str) -> SessionCut:
    """Read the cut of a session, in the field *name*."""
    match value:
        case [[*partitions], dict(unfinished)]:
            numbers = frozenset(each for each in partitions if type(each) is int)
            selectors = {RequestNumber(int(key)): each for key, each in unfinished.items() if isinstance(each, str)}
            if len(numbers) == len(partitions) and len(selectors) == len(unfinished):
                return SessionCut(numbers, selectors)
    return frame.fail(name, "a list of cuts")


def read_changes(row: JsonValue, frame: Record) -> Changes:
    """Read what has changed of one session."""
    match row:
        case [
            int(slot),
            int(received),
            int(newest),
            int(settled),
            int(refused),
            int(done),
            [*works],
            [*unseen],
            rest,
            recorded,
            cut,
        ] if min(received, newest, settled, refused, done) >= 0:
            return Changes(
                slot,
                (received, newest, settled, refused),
                done,
                tuple([read_request(work, frame, "changes") for work in works]),
                unseen,
                rest if isinstance(rest, list) else None,
                recorded if isinstance(recorded, list) else None,
                None if cut is None else read_cut(cut, frame, "changes"),
            )
    return frame.fail("changes", "a list of changes")


def read_cuts(frame: Record) -> dict[int, EventId | None]:
    """Read the places that have changed."""
    value = frame.value("cuts")
    if isinstance(value, dict):
        places = {
            int(number): None if event is None else EventId(event)
            for number, event in value.items()
            if number.isdecimal() and (event is None or isinstance(event, str))
        }
        if len(places) == len(value):
            return places
    return frame.fail("cuts", "an object of events by partitions")


def _read_numbered(row: JsonValue, frame: Record) -> tuple[int, Run]:
    if isinstance(row, list) and row and type(row[0]) is int:
        return row[0], read_run(row[1:], frame)
    return frame.fail(RUNS, "a list of runs with their numbers")


def _write_cut(cut: SessionCut) -> list[JsonValue]:
    unfinished: dict[str, JsonValue] = {str(number): selector for number, selector in cut.unfinished.items()}
    return [list[JsonValue](sorted(cut.partitions)), unfinished]
