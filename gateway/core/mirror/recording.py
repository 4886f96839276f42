"""Buffer, outbox and requests of a session that tell what is done with them, where somebody keeps a copy.

They take the places of those that tell nobody, and only in sessions that are copied: for all others, nothing is added
to the paths that every packet takes, not even a question whether there is a copy (M5).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.core.session.pending import PendingRequests, Work
from gateway.core.stream.outbox import Outbox
from gateway.core.stream.resend import ResendBuffer
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.types import PacketId


class Recorder(Protocol):
    """Hears what is done with the packets of one session. Its methods raise nothing."""

    def numbered(self, run: Run) -> None:
        """A run that did not wait has got its numbers, and nobody tells of it together with other sessions."""

    def pushed(self, run: Run) -> None:
        """A run has begun to wait."""

    def took(self, packets: int) -> None:
        """So many of the packets that waited longest have been taken, and are numbered."""

    def folded(self) -> None:
        """From now on what waits is folded."""

    def touch(self) -> None:
        """Something else may have changed."""

    def acknowledged(self) -> None:
        """Some of what is kept may have been acknowledged."""

    def rewrote(self) -> None:
        """What is kept, or waits, has been dropped or replaced."""


class RecordingBuffer(ResendBuffer):
    """A resend buffer that tells of everything; see ``ResendBuffer.move_to``.

    Args:
        recorder: whom.
    """

    __slots__ = ("_recorder",)

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(packets=0, size=0)
        self._recorder = recorder

    def number(self, run: Run, *, beyond: bool = False) -> PacketId | None:
        """See ``ResendBuffer``."""
        first = super().number(run, beyond=beyond)
        if first is not None:
            self._recorder.numbered(run)
        return first

    def acknowledge(self, received: PacketId) -> None:
        """See ``ResendBuffer``."""
        super().acknowledge(received)
        self._recorder.acknowledged()

    def forget(self) -> None:
        """See ``ResendBuffer``."""
        super().forget()
        self._recorder.rewrote()

    def withhold(self, is_withdrawn: Callable[[str], bool], stand_in: Outgoing) -> None:
        """See ``ResendBuffer``."""
        super().withhold(is_withdrawn, stand_in)
        self._recorder.rewrote()


class RecordingOutbox(Outbox):
    """An outbox that tells of everything; see ``Outbox.move_to``.

    Args:
        recorder: whom.
    """

    __slots__ = ("_recorder",)

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def push(self, run: Run) -> None:
        """See ``Outbox``."""
        super().push(run)
        self._recorder.pushed(run)
        if self._folded is not None:
            self._recorder.touch()  # it is counted what was folded

    def take(self, *, packets: int, size: int) -> list[Run]:
        """See ``Outbox``."""
        waiting = self.count
        if self.spared:
            self._recorder.touch()
        taken = super().take(packets=packets, size=size)
        if waiting != self.count:
            self._recorder.took(waiting - self.count)
        return taken

    def conflate(self) -> None:
        """See ``Outbox``."""
        if self._queue:  # else nothing is folded
            self._recorder.folded()
        if self._queue or self.spared:
            self._recorder.touch()
        super().conflate()

    def spare(self) -> None:
        """See ``Outbox``."""
        super().spare()
        self._recorder.touch()

    def withhold(self, is_withdrawn: Callable[[str], bool]) -> None:
        """See ``Outbox``."""
        super().withhold(is_withdrawn)
        self._recorder.rewrote()

    def clear(self) -> int:
        """See ``Outbox``."""
        dropped = super().clear()
        self._recorder.rewrote()
        return dropped


class RecordingRequests(PendingRequests):
    """Pending requests that tell of each change; made of those that tell nobody by ``record``, and back by ``release``.

    It is the same object all the time, because the lane that executes the requests holds it, too.
    """

    __slots__ = ()

    def put(self, work: Work) -> int:
        """See ``PendingRequests``."""
        weighs = super().put(work)
        self._tell()
        return weighs

    def finish(self) -> None:
        """See ``PendingRequests``."""
        super().finish()
        self._tell()

    def restart(self) -> None:
        """See ``PendingRequests``."""
        super().restart()
        self._tell()

    def clear(self) -> None:
        """See ``PendingRequests``."""
        super().clear()
        self._tell()

    def _tell(self) -> None:
        if self.recorder is not None:
            self.recorder()


def record(pending: PendingRequests, tell: Callable[[], None]) -> None:
    """Have pending requests tell of each change."""
    pending.__class__ = RecordingRequests
    pending.recorder = tell


def release(pending: PendingRequests) -> None:
    """Have them tell nobody."""
    pending.__class__ = PendingRequests
    pending.recorder = None
