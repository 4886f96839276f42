"""The log of one live node for one backup: which sessions are in it, and what is written into each frame.

Sessions come into it one by one, at a bounded rate, beside all that happens to those that are in it already. One that
has to be written anew, as when a right to some of its topics was withdrawn, waits in the same line; its copy is given
up until then, as it would be wrong.

What is done with packets is noted in one order for all sessions. Neighbours that do the same share a row. What many are
sent together is noted once for all of them (``sent_together``), and not by each: a fan-out to a thousand costs the same
as one to ten, for as long as the same sessions are copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import pack
from typing import Final, Generic

from gateway.core.mirror.frames import NUMBER, FrameWriter, SessionCut
from gateway.core.mirror.run_numbers import RunNumbers
from gateway.core.mirror.tap import S, SessionTap
from gateway.core.pacing.rates import TokenBucket
from gateway.core.stream.runs import Run
from gateway.core.types import Epoch, EventId

WHOLE_RATE: Final = 2000
"""Sessions a second that are written whole: an idle one is some 10 µs of the node, and 30 of its backup."""

WHOLE_AT_ONCE: Final = 40
"""Sessions that are written whole in one frame: a few milliseconds with 50 packets each."""

WHOLE_BYTES: Final = 256 * 1024
"""Bytes of whole sessions in a frame after which no further one begins."""


MOST_GROUPS: Final = 256
"""Groups of sessions whose slots are remembered as they are written, with 4 bytes for each session, until a session
comes or goes. A node with more topics that many share writes those of some of them anew."""


NOTHING: Final = ""
"""The step of a row that nothing is added to."""


class _Row(Generic[S]):
    """What was done with packets of sessions, one after the other.

    Attributes:
        step: what.
        argument: with which run, or with how many packets.
        slots: of the sessions that have noted it by themselves.
        sessions: for whom it was noted together, of those that are copied; none if they have noted it by themselves.
        others: those of them for whom it was not done.
        answers: whether there is more in the run than updates: with replies and notices, more of a session changes.
    """

    __slots__ = ("answers", "argument", "others", "sessions", "slots", "step")

    def __init__(self, step: str, argument: Run | int, sessions: Sequence[S] = (), others: Sequence[S] = ()) -> None:
        self.step = step
        self.argument = argument
        self.slots: list[int] = []
        self.sessions = sessions
        self.others = others
        self.answers = isinstance(argument, Run) and None in argument.topics


class MirrorLog(Generic[S]):
    """What a backup has been sent, and what it is to be sent next.

    Args:
        number: of the log; the next one has another.
        epoch_of: tells by which claim a session is this node's.
        cut_of: tells which of the node's places are those of a session.
        wake: told when there is something to write, once until ``frame`` is called.
        wake_later: told when there is something that can wait for what else there is to write, likewise.
        rate: sessions a second that are written whole.

    Attributes:
        number: as given.
        sequence: of the last frame; 0 for none.
        acknowledged: up to which frame the backup has taken in all.
    """

    def __init__(
        self,
        number: int,
        *,
        epoch_of: Callable[[S], Epoch],
        cut_of: Callable[[S], SessionCut],
        wake: Callable[[], None],
        wake_later: Callable[[], None],
        rate: float = WHOLE_RATE,
    ) -> None:
        self.number = number
        self.sequence = 0
        self.acknowledged = 0
        self._epoch_of = epoch_of
        self._cut_of = cut_of
        self._wake = wake
        self._wake_later = wake_later
        self._woken = self._woken_later = False
        self._runs = RunNumbers()
        self._taps: dict[S, SessionTap[S]] = {}
        self._by_slot: dict[int, SessionTap[S]] = {}
        self._rows: list[_Row[S]] = []
        self._row: _Row[S] = _Row(NOTHING, 0)
        """The last one."""
        self._stale: set[int] = set()
        """Slots of which nothing that is in the rows must be written."""
        self._copied: dict[S, int] = {}
        """Slots of the sessions that were written whole, so that changes can follow."""
        self._groups: dict[int, tuple[Sequence[S], bytes]] = {}
        """Slots of some sessions as they are written, by the identity of what names these, which stays for that."""
        self._slots = 0
        self._dirty: list[SessionTap[S]] = []
        self._acked: list[SessionTap[S]] = []
        self._line: deque[SessionTap[S]] = deque()
        self._lined: set[int] = set()
        self._gone: list[int] = []
        self._cuts: dict[int, EventId | None] = {}
        self._bucket = TokenBucket(rate, WHOLE_AT_ONCE)

    def __len__(self) -> int:
        return len(self._taps)

    @property
    def waiting(self) -> int:
        """Sessions of which the backup has no copy yet, or not any more."""
        return len(self._line)

    @property
    def is_written(self) -> bool:
        """Whether all of each session has been written, so that the backup has copies once it has taken that in."""
        return not self._line and not any(tap.must_rewrite for tap in self._dirty)

    @property
    def has_news(self) -> bool:
        """Whether something has happened to sessions since the last frame, acknowledgements apart."""
        return self._woken

    def __contains__(self, session: object) -> bool:
        return session in self._taps

    def tap(self, session: S) -> SessionTap[S] | None:
        """Return what notes the changes of a session, if it is in the log."""
        return self._taps.get(session)

    # --- Sessions -----------------------------------------------------------------------------------------------------

    def add(self, session: S) -> None:
        """Have a session copied. If it is already, it is looked at again, as it may have another machine."""
        known = self._taps.get(session)
        if known is not None:
            if known.machine is session.machine:
                known.look_again()
                return
            self.remove(session)
        self._slots += 1
        tap = self._taps[session] = self._by_slot[self._slots] = SessionTap(session, self._slots, self)
        tap.start()

    def remove(self, session: S) -> None:
        """Keep no copy of a session any more."""
        tap = self._taps.pop(session, None)
        if tap is not None:
            tap.remove()
            del self._by_slot[tap.slot]
            self._give_up(tap)
            self._lined.discard(tap.slot)
            if tap.is_whole:
                self._gone.append(tap.slot)
                self._wake_once()

    def sessions(self) -> list[S]:
        """List those that are in it."""
        return list(self._taps)

    def close(self) -> None:
        """Have nothing noted any more."""
        for session in self.sessions():
            self.remove(session)

    def refused(self, slot: int, sequence: int) -> bool:
        """The backup has no room for the copy of a session: it has none until ``write_again``, and after that.

        Args:
            slot: of the session.
            sequence: of the last frame that the backup had taken in when it said so. If the session was written whole
                after that, it is not known yet whether there is room for it.

        Returns:
            Whether that counts.
        """
        tap = self._by_slot.get(slot)
        if tap is None or tap.whole_in > sequence:
            return False
        tap.is_whole = False
        tap.is_refused = True
        tap.rewrote()
        self._give_up(tap)
        return True

    def write_again(self, slot: int) -> None:
        """The backup may have room again for the copy of a session that it had refused; it waits in the line."""
        tap = self._by_slot.get(slot)
        if tap is not None and tap.is_refused:
            tap.is_refused = False
            self.queue(tap)

    # --- What happens to them -----------------------------------------------------------------------------------------

    def sent_together(self, run: Run, sessions: Sequence[S], others: Iterable[S] = ()) -> None:
        """A run of updates was numbered for many sessions, and none of them has told of it.

        Args:
            run: which.
            sessions: for whom; those that are not copied are left out. It does not change any more.
            others: those of them for whom it was not.
        """
        self._row = _Row(NUMBER, run, sessions, tuple(others))
        self._rows.append(self._row)
        self._wake_once()

    def note(self, tap: SessionTap[S], step: str, argument: Run | int) -> None:
        """See ``Notes``."""
        row = self._row
        if row.argument is not argument or row.step is not step or row.sessions:
            row = self._row = _Row(step, argument)
            self._rows.append(row)
            self._wake_once()
        row.slots.append(tap.slot)
        tap.written = self.sequence + 1
        if row.answers:
            tap.touch()

    def queue(self, tap: SessionTap[S]) -> None:
        """See ``Notes``."""
        self._dirty.append(tap)
        self._wake_once()

    def queue_ack(self, tap: SessionTap[S]) -> None:
        """See ``Notes``."""
        self._acked.append(tap)
        if not self._woken_later:
            self._woken_later = True
            self._wake_later()

    def _wake_once(self) -> None:
        if not self._woken:
            self._woken = True
            self._wake()

    # --- Frames -------------------------------------------------------------------------------------------------------

    def frame(self, cuts: Mapping[int, EventId | None], now: float) -> bytes | None:
        """Write all that has changed.

        Args:
            cuts: how far this node has come in partitions in which that may have changed; None if nobody can tell.
            now: monotonic seconds.

        Returns:
            The next frame; None if there is nothing to say.
        """
        self._woken = self._woken_later = False
        frame = FrameWriter(self.number, self.sequence + 1)
        self._write_changes(frame)
        self._write_steps(frame)
        if self._line:
            self._write_whole(frame, now)
        for slot in self._gone:
            frame.gone(slot)
        self._gone.clear()
        for slot in frame.checked:
            frame.check += self._by_slot[slot].machine.last_numbered
        written = frame.encode(self._changed_cuts(cuts))
        self._runs.forget()
        if written is not None:
            self.sequence += 1
        return written

    def _write_changes(self, frame: FrameWriter) -> None:
        """Write what the sessions have noted by themselves."""
        dirty, self._dirty = self._dirty, []
        acked, self._acked = self._acked, []
        cut_of, epoch_of = self._cut_of, self._epoch_of
        for tap in dirty:
            if self._by_slot.get(tap.slot) is not tap:
                continue
            if tap.is_refused:
                continue
            if tap.must_rewrite:
                self._put_in_line(tap)
            else:
                tap.write_changes(frame, cut_of, epoch_of)
        for tap in acked:
            if self._by_slot.get(tap.slot) is tap:
                tap.write_acked(frame)

    def _put_in_line(self, tap: SessionTap[S]) -> None:
        """It stays queued, so that what happens to it is not looked at before it is written."""
        self._give_up(tap)
        if tap.slot not in self._lined:
            self._lined.add(tap.slot)
            self._line.append(tap)
            if tap.is_whole:
                tap.is_whole = False
                self._gone.append(tap.slot)

    def _give_up(self, tap: SessionTap[S]) -> None:
        """What has been noted of a session is not written, but what it has become is, perhaps."""
        self._stale.add(tap.slot)
        if self._copied.pop(tap.session, None) is not None:
            self._groups.clear()

    def _write_steps(self, frame: FrameWriter) -> None:
        """Write what was done with packets, before a session is written whole: that has it already."""
        rows, self._rows, self._row = self._rows, [], _Row(NOTHING, 0)
        stale, copied = self._stale, self._copied
        for row in rows:
            if not row.sessions:
                slots = [slot for slot in row.slots if slot not in stale] if stale else row.slots
                if slots:
                    frame.step(row.step, self._number_of(row.argument, frame), slots)
            elif group := self._slots_of(row.sessions):
                others = [copied[each] for each in row.others if each in copied]
                frame.step_together(row.step, self._number_of(row.argument, frame), group, others)
        stale.clear()

    def _number_of(self, run: Run | int, frame: FrameWriter) -> int:
        """Find the number of a run, which is sent first if the backup does not know it; a number of packets stays.

        Only for a row that is written: a frame may be left out that has nothing to say.
        """
        if isinstance(run, int):
            return run
        number = self._runs.find(run)
        if number is None:
            number = self._runs.add(run)
            frame.run(number, run)
        return number

    def _slots_of(self, sessions: Sequence[S]) -> bytes:
        group = self._groups.get(id(sessions))
        if group is None:
            copied = self._copied
            slots = [slot for slot in map(copied.get, sessions) if slot is not None]
            if len(self._groups) >= MOST_GROUPS:
                self._groups.clear()
            group = self._groups[id(sessions)] = sessions, pack(f">{len(slots)}I", *slots)
        return group[1]

    def _write_whole(self, frame: FrameWriter, now: float) -> None:
        size = written = 0
        while self._line and size < WHOLE_BYTES and written < WHOLE_AT_ONCE and not self._bucket.take(now):
            tap = self._line.popleft()
            if tap.slot in self._lined:
                self._lined.discard(tap.slot)
                session = tap.session
                size += tap.write_whole(frame, self._cut_of(session), self._epoch_of(session))
                written += 1
                self._copied[session] = tap.slot
        if written:
            self._groups.clear()

    def _changed_cuts(self, cuts: Mapping[int, EventId | None]) -> dict[int, EventId | None]:
        before = self._cuts
        changed = {number: event for number, event in cuts.items() if before.get(number) != event}
        before.update(changed)
        return changed
