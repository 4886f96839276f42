"""What is noted of one session between two frames, and what is written of it into the next one.

Most sessions are only sent something that others are sent, too, or acknowledge it: that is all that is looked at then.
Whatever else may have changed is found by comparing it with what was written last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

from gateway.core.mirror.frames import Changes, FrameWriter, SessionCut
from gateway.core.mirror.recording import RecordingBuffer, RecordingOutbox, record, release
from gateway.core.mirror.run_numbers import NumberedRun, RunNumbers
from gateway.core.session.answers import Answered
from gateway.core.session.export import export
from gateway.core.session.pending import Work
from gateway.core.session.server_session import ServerSession
from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.outbox import Outbox
from gateway.core.stream.resend import ResendBuffer
from gateway.core.stream.runs import Run
from gateway.core.types import Epoch, JsonValue

_Step: TypeAlias = "Run | tuple[Run] | int | None"
"""Noted as it comes: a run that was numbered, one that waits, packets that were taken, or that what waits is folded."""


S = TypeVar("S", bound=ServerSession)
"""A session."""


class SessionTap(Generic[S]):
    """Notes what happens to one session.

    Args:
        session: which.
        slot: its number in the log.
        queue: told when there is something to write, once until it was written.
        queue_ack: told when something was acknowledged, likewise; that can wait for what else there is to write.

    Attributes:
        session: as given.
        slot: as given.
        machine: of the session, when it was tapped; if it has another one by now, it has to be tapped anew.
        is_queued: whether there is something to write.
        is_whole: whether all of it was written, so that changes can follow.
        must_rewrite: whether all of it has to be written.
        is_refused: whether the backup has no room for it, so that this has to wait.
        is_moved: whether its cut may have changed.
        written: the last frame in which something of it was written.
        whole_in: the last frame in which all of it was written.
    """

    __slots__ = (
        "_acked",
        "_cut",
        "_queue",
        "_queue_ack",
        "_rest",
        "_steps",
        "_touched",
        "_unseen",
        "_waits",
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

    def __init__(
        self,
        session: S,
        slot: int,
        queue: Callable[[SessionTap[S]], None],
        queue_ack: Callable[[SessionTap[S]], None],
    ) -> None:
        self.session = session
        self.slot = slot
        self.machine: SessionMachine = session.machine
        self._queue = queue
        self._queue_ack = queue_ack
        self._steps: list[_Step] = []
        self._touched = self._acked = self._waits = False
        self._works: list[Work] = []
        self._unseen: Answered | None = None
        self._rest: tuple[object, ...] = ()
        self._cut: SessionCut | None = None
        self.is_queued = self.is_whole = self.is_moved = self.is_refused = False
        self.must_rewrite = True
        self.written = self.whole_in = 0

    def start(self) -> None:
        """Begin to note what happens."""
        self.machine.tap(RecordingBuffer(self), RecordingOutbox(self))
        record(self.session.pending, self.touch)
        self._enqueue()

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
        self._step(run)

    def pushed(self, run: Run) -> None:
        """See ``Recorder``."""
        self._step((run,))

    def took(self, packets: int) -> None:
        """See ``Recorder``."""
        self._step(packets)

    def folded(self) -> None:
        """See ``Recorder``."""
        self._step(None)
        self._touched = True  # counts what was folded

    def acknowledged(self) -> None:
        """See ``Recorder``."""
        if not self._acked:
            self._acked = True
            self._queue_ack(self)

    def rewrote(self) -> None:
        """See ``Recorder``."""
        self.must_rewrite = True
        self._steps.clear()
        if not self.is_queued:
            self._enqueue()

    def touch(self) -> None:
        """Something else may have changed."""
        self._touched = True
        if not self.is_queued:
            self._enqueue()

    def _step(self, step: _Step) -> None:
        if not self.must_rewrite:
            self._steps.append(step)
            if not self.is_queued:
                self._enqueue()

    def _enqueue(self) -> None:
        self.is_queued = True
        self._queue(self)

    @property
    def has_steps(self) -> bool:
        """Whether something was numbered, or done with what waits, since the last frame."""
        return bool(self._steps)

    # --- What is written ----------------------------------------------------------------------------------------------

    def write_whole(self, frame: FrameWriter, cut: SessionCut, epoch: Epoch) -> int:
        """Write all of the session; returns how many bytes that is."""
        session = self.session
        exported = export(session, 0.0)
        frame.whole(self.slot, exported, epoch, cut)
        self._clear()
        self.is_queued = self.must_rewrite = self.is_refused = False
        self.is_whole = True
        self.written = self.whole_in = frame.sequence
        self._waits = session.machine.outbox.count > 0
        self._works = list(session.pending)
        self._unseen = session.answers.unseen[-1] if session.answers.unseen else None
        self._rest = self._all_else(epoch)
        self._cut = cut
        return len(exported)

    def write_changes(
        self,
        frame: FrameWriter,
        runs: RunNumbers,
        cut_of: Callable[[S], SessionCut],
        epoch_of: Callable[[S], Epoch],
    ) -> None:
        """Write what has changed.

        Args:
            frame: where.
            runs: that the backup knows.
            cut_of: tells the cut of the session, if it may have changed.
            epoch_of: tells its epoch.
        """
        machine, slot, steps = self.machine, self.slot, self._steps
        waits = machine.outbox.count > 0
        has_steps = (waits or self._waits) and bool(steps)
        if not has_steps and steps:
            sent = [known(step, runs, frame) for step in steps if isinstance(step, Run)]
            if sent:
                frame.sent(tuple([each.number for each in sent]), slot)
                self._touched = self._touched or any(each.answers for each in sent)
        if self._touched or has_steps:
            cut = cut_of(self.session) if self.is_moved else None
            written = self._written_steps(runs, frame) if has_steps else None
            self._write_rest(frame, written, cut, epoch_of(self.session))
        self._waits = waits
        self._clear()
        self.is_queued = False
        self.written = frame.sequence

    def write_acked(self, frame: FrameWriter) -> None:
        """Write what was acknowledged."""
        self._acked = False
        if self.is_whole and not self.must_rewrite:
            frame.acked(self.slot, self.machine.oldest - 1)

    def _write_rest(
        self, frame: FrameWriter, steps: list[JsonValue] | None, cut: SessionCut | None, epoch: Epoch
    ) -> None:
        session = self.session
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
                steps,
                written,
                cut,
            )
        )

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

    def _written_steps(self, runs: RunNumbers, frame: FrameWriter) -> list[JsonValue]:
        written: list[JsonValue] = []
        taken = 0
        for step in self._steps:
            if isinstance(step, Run):
                if taken > 0:  # what was taken is numbered next, and the copy takes it, too
                    taken -= step.count
                else:
                    written.append(["number", known(step, runs, frame).number])
            elif step is None:
                written.append(["fold"])
            elif isinstance(step, int):
                taken = step
                written.append(["take", step])
            else:
                written.append(["push", known(step[0], runs, frame).number])
        return written

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

    def _clear(self) -> None:
        self._steps = []
        self._touched = self.is_moved = False


def _is_same(one: object, other: object) -> bool:
    return one is other


def known(run: Run, runs: RunNumbers, frame: FrameWriter) -> NumberedRun:
    """Find a run, which is sent first if the backup does not know it."""
    numbered = runs.find(run)
    if numbered is None:
        numbered = runs.add(run)
        frame.run(numbered.number, run)
    return numbered
