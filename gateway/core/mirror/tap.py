"""What is noted of one session between two frames, and what is written of it into the next one.

What is done with its packets is noted step by step, among the steps of all others (``log``). Of what it has
acknowledged it is only noted that there is something. Whatever else may have changed is found by comparing it with what
was written last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import is_
from typing import Generic, NamedTuple, Protocol, TypeVar

from gateway.core.mirror.frames import FOLD, NUMBER, PUSH, TAKE, Changes, FrameWriter, SessionCut
from gateway.core.mirror.recording import RecordingBuffer, RecordingOutbox, record, release
from gateway.core.session.answers import Answered
from gateway.core.session.export import export
from gateway.core.session.pending import Work
from gateway.core.session.server_session import ServerSession
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.outbox import Outbox
from gateway.core.stream.resend import ResendBuffer
from gateway.core.stream.runs import Run
from gateway.core.topics.selections import ListChanges, Selections
from gateway.core.types import Attempt, Epoch, GridGeneration, JsonValue

S = TypeVar("S", bound=ServerSession)
"""A session."""


class Notes(Protocol[S]):
    """Where what happens to sessions is noted, in order."""

    def queue(self, tap: SessionTap[S]) -> None:
        """There is something to compare, once until it was written."""

    def queue_ack(self, tap: SessionTap[S]) -> None:
        """Something was acknowledged, likewise; that can wait for what else there is to write."""

    def note(self, tap: SessionTap[S], step: str, argument: Run | int) -> None:
        """Something was done with packets of a session: a step, and the run or the number of packets."""


class SessionTap(Generic[S]):
    """Notes what happens to one session.

    Args:
        session: which.
        slot: its number in the log.
        notes: of the log.

    Attributes:
        session: as given.
        slot: as given.
        machine: of the session, when it was tapped; if it has another one by now, it has to be tapped anew.
        is_queued: whether there is something to compare.
        is_whole: whether all of it was written, so that changes can follow.
        must_rewrite: whether all of it has to be written.
        is_refused: whether the backup has no room for it, so that this has to wait.
        is_moved: whether its cut may have changed.
        written: the last frame in which something of it was written, or is going to be.
        whole_in: the last frame in which all of it was written.
    """

    __slots__ = (
        "_acked",
        "_cut",
        "_notes",
        "_recorded",
        "_rest",
        "_unseen",
        "_works",
        "is_moved",
        "is_queued",
        "is_refused",
        "is_whole",
        "machine",
        "must_rewrite",
        "session",
        "slot",
        "whole_in",
        "written",
    )

    def __init__(self, session: S, slot: int, notes: Notes[S]) -> None:
        self.session = session
        self.slot = slot
        self.machine: SessionMachine = session.machine
        self._notes = notes
        self._acked = False
        self._works: list[Work] = []
        self._unseen: Answered | None = None
        self._rest: tuple[object, ...] = ()
        self._recorded = _recorded(session)
        self._cut: SessionCut | None = None
        self.is_queued = self.is_whole = self.is_moved = self.is_refused = False
        self.must_rewrite = True
        self.written = self.whole_in = 0

    def start(self) -> None:
        """Begin to note what happens."""
        self.machine.tap(RecordingBuffer(self), RecordingOutbox(self))
        record(self.session.pending, self.touch)
        self.touch()

    def look_again(self) -> None:
        """The session has a connection again, or other selections: what is not noted by itself may have changed.

        Where numbering began anew, it has other requests as well.
        """
        if self.session.pending.recorder is None:
            record(self.session.pending, self.touch)
        self.is_moved = True
        self.touch()

    def remove(self) -> None:
        """Note nothing more, and leave the session as it was; it and this would hold each other else."""
        machine = self.machine
        machine.tap(ResendBuffer(packets=0, size=0), Outbox())
        release(self.session.pending)

    # --- What happens -------------------------------------------------------------------------------------------------

    def numbered(self, run: Run) -> None:
        """See ``Recorder``."""
        if not self.must_rewrite:
            self._notes.note(self, NUMBER, run)

    def pushed(self, run: Run) -> None:
        """See ``Recorder``."""
        if not self.must_rewrite:
            self._notes.note(self, PUSH, run)

    def took(self, packets: int) -> None:
        """See ``Recorder``."""
        if not self.must_rewrite:
            self._notes.note(self, TAKE, packets)

    def folded(self) -> None:
        """See ``Recorder``."""
        if not self.must_rewrite:
            self._notes.note(self, FOLD, 0)

    def acknowledged(self) -> None:
        """See ``Recorder``."""
        if not self._acked:
            self._acked = True
            self._notes.queue_ack(self)

    def rewrote(self) -> None:
        """See ``Recorder``."""
        self.must_rewrite = True
        self.touch()

    def touch(self) -> None:
        """See ``Recorder``."""
        if not self.is_queued:
            self.is_queued = True
            self._notes.queue(self)

    # --- What is written ----------------------------------------------------------------------------------------------

    def write_whole(self, frame: FrameWriter, cut: SessionCut, epoch: Epoch) -> int:
        """Write all of the session; returns how many bytes that is."""
        session = self.session
        exported = export(session, 0.0)
        frame.whole(self.slot, exported, epoch, cut)
        self.is_queued = self.is_moved = self.must_rewrite = self.is_refused = False
        self.is_whole = True
        self.written = self.whole_in = frame.sequence
        self._works = list(session.pending)
        self._unseen = session.answers.unseen[-1] if session.answers.unseen else None
        self._rest = self._all_else(epoch)
        self._recorded = _recorded(session)
        self._cut = cut
        return len(exported)

    def write_changes(
        self, frame: FrameWriter, cut_of: Callable[[S], SessionCut], epoch_of: Callable[[S], Epoch]
    ) -> None:
        """Write what has changed besides its packets.

        Args:
            frame: where.
            cut_of: tells the cut of the session, if it may have changed.
            epoch_of: tells its epoch.
        """
        session = self.session
        cut, epoch = cut_of(session) if self.is_moved else None, epoch_of(session)
        self.is_queued = self.is_moved = False
        self.written = frame.sequence
        answers, machine = session.answers, self.machine
        session.settled()  # looks at what has been acknowledged
        done, asked = self._look_at_requests()
        unseen: list[JsonValue] = []
        for each in reversed(answers.unseen):
            if each is self._unseen:
                break
            unseen.append(list(each))
        unseen.reverse()
        self._unseen = answers.unseen[-1] if answers.unseen else None
        rest = self._all_else(epoch)
        written: list[JsonValue] | None = None
        if rest != self._rest:
            self._rest = rest
            written = self._written_rest(epoch)
        if cut is not None and cut == self._cut:
            cut = None
        elif cut is not None:
            self._cut = cut
        frame.changed(
            Changes(
                self.slot,
                (machine.received, session.newest, answers.settled, answers.refused),
                done,
                asked,
                unseen,
                written,
                self._written_record(),
                cut,
            )
        )

    def write_acked(self, frame: FrameWriter) -> None:
        """Write what was acknowledged."""
        self._acked = False
        if self.is_whole and not self.must_rewrite:
            frame.acked(self.slot, self.machine.oldest - 1)

    def _look_at_requests(self) -> tuple[int, tuple[Work, ...]]:
        """Compare the pending requests with those that were written; returns how many are done, and what is new."""
        before, now = self._works, list(self.session.pending)
        self._works = now
        if not before:
            return 0, tuple(now)
        if not now:
            return len(before), ()
        for done, work in enumerate(before):
            if work is now[0]:
                left = before[done:]
                if len(left) <= len(now) and all(map(_is_same, left, now)):
                    return done, tuple(now[len(left) :])
                break
        return len(before), tuple(now)

    def _all_else(self, epoch: Epoch) -> tuple[object, ...]:
        session = self.session
        return (
            self.machine.standing(),
            session.declared,
            session.declaring,
            session.supports,
            session.token_generation,
            epoch,
        )

    def _written_rest(self, epoch: Epoch) -> list[JsonValue]:
        session = self.session
        supports: list[JsonValue] = [*sorted(session.supports)]
        declaring: list[JsonValue] | None = None if session.declaring is None else list(session.declaring)
        return [
            list(self.machine.standing()),
            session.declared,
            declaring,
            supports,
            session.token_generation,
            epoch,
        ]

    def _written_record(self) -> list[JsonValue] | None:
        """Write what has changed of what the grid holds, too; None if nothing has.

        The newest generation of the grid that holds it, the attempt, and null for what is as it was: all properties,
        all partitions with receipts, of the selections what goes and what comes at the end, and all handlers.
        """
        before, now = self._recorded, _recorded(self.session)
        if all(map(is_, now, before)):
            return None
        self._recorded = now
        properties: dict[str, JsonValue] | None = None
        if now.properties is not before.properties:  # equal ones may be in another order
            properties = {**now.properties}
        partitions: list[JsonValue] | None = None
        if now.partitions != before.partitions:
            partitions = [*sorted(now.partitions)]
        selections: list[JsonValue] | None = None
        if now.selections != before.selections:
            changes = now.selections.changes_since(before.selections)
            if changes is None:
                changes = ListChanges(tuple([each.selector.text for each in before.selections]), now.selections.entries)
            selections = [[*changes.removed], [*map(str, changes.added)]]
        handlers: dict[str, JsonValue] | None = None
        if now.handlers is not before.handlers:
            handlers = {**now.handlers}
        return [now.generation, now.attempt, properties, partitions, selections, handlers]


class _Recorded(NamedTuple):
    """What the grid holds of a session, too, and a frame tells of: its owner replaces what it changes."""

    generation: GridGeneration
    attempt: Attempt
    properties: Mapping[str, str]
    partitions: frozenset[int]
    selections: Selections
    handlers: Mapping[str, int]


def _recorded(session: ServerSession) -> _Recorded:
    return _Recorded(
        session.stored_generation,
        session.attempt,
        session.properties,
        session.publish_partitions,
        session.selections,
        session.handlers,
    )


def _is_same(one: object, other: object) -> bool:
    return one is other
