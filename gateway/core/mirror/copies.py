"""The copies that a backup holds of the sessions of one live node (seed 002).

A copy is a session of its own: restored of an export, and then changed as the frames say. It executes nothing, sends
nothing to a client and writes nothing to the grid (M4); it is there to be given to who has claimed the session (P3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gateway.core.mirror.frames import (
    FOLD,
    NUMBER,
    PUSH,
    TAKE,
    SessionCut,
    Steps,
    read_changes,
    read_cut,
    read_cuts,
    read_runs,
    read_steps,
)
from gateway.core.mirror.run_numbers import NumberedRuns
from gateway.core.session.export import export, restore
from gateway.core.session.handoff import GONE, ClaimRank, Given, GiveStatus, may_give
from gateway.core.session.server_session import NO_HANDLERS, ServerSession
from gateway.core.stream.byte_form import Record
from gateway.core.stream.machine import Standing
from gateway.core.stream.runs import Run
from gateway.core.stream.transitions import State
from gateway.core.types import (
    Attempt,
    Epoch,
    EventId,
    GridGeneration,
    JsonValue,
    PacketId,
    RequestNumber,
    SessionId,
    TokenGeneration,
)
from gateway.core.wire.codec.fields import word_set
from gateway.core.wire.errors import InvalidExport, LocalProtocolError, RemoteProtocolError

COPY_BYTES: Final = 4096
"""Of a copy besides what is kept for its client, about."""

PACKET_BYTES: Final = 100
"""Of a packet besides its body, about."""

ALL: Final = 1 << 60
"""More bytes than there are."""


class Copy:
    """The copy of one session.

    Attributes:
        session: as it was at its node.
        slot: its number in the log.
        epoch: by which it was that node's.
        cut: which of the node's places are its own.
        buffer: what is kept for its client.
        claim: the latest claim to which it was given; None for none. From then on it stays as it is.
        places: how far it had come, once it was given.
        size: bytes, about; what it shares with others counts in parts.
    """

    __slots__ = ("buffer", "claim", "cut", "epoch", "places", "session", "size", "slot")

    def __init__(self, session: ServerSession, slot: int, epoch: Epoch, cut: SessionCut) -> None:
        self.session = session
        self.slot = slot
        self.epoch = epoch
        self.cut = cut
        self.claim: ClaimRank | None = None
        self.places: dict[int, EventId] = {}
        machine = session.machine
        self.buffer = machine.buffer
        self.size = COPY_BYTES + machine.resend_bytes + machine.waiting_bytes + session.pending.bytes

    @property
    def rank(self) -> ClaimRank:
        """How late the claim is by which it was its node's."""
        return ClaimRank(self.session.attempt, self.epoch)


class Copies:
    """All copies of one log.

    Args:
        most_bytes: that they may take, about; beyond, the copy that grows is given up (P20). 0 for no bound.

    Attributes:
        log: number of the log; 0 before the first frame.
        sequence: of the last frame.
        size: bytes of all, about.
        refused: slots of copies that were given up since this was last emptied, and are not here again.
    """

    def __init__(self, most_bytes: int = 0) -> None:
        self.log = 0
        self.sequence = 0
        self.size = 0
        self.refused: list[int] = []
        self._most_bytes = most_bytes
        self._runs = NumberedRuns()
        self._slots: dict[int, Copy] = {}
        self._sessions: dict[SessionId, Copy] = {}
        self._cuts: dict[int, EventId] = {}
        self._grown: dict[int, Copy] = {}
        """Copies that have grown in the frame at hand while there was no room."""
        self._left_out: set[int] = set()
        """Slots of which nothing is kept though their node may not know it yet."""
        self._is_complete = True
        """Whether nothing in the frame at hand was left out."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session: object) -> bool:
        return session in self._sessions

    def copy_of(self, session: SessionId) -> Copy | None:
        """Return the copy of a session."""
        return self._sessions.get(session)

    # --- Given --------------------------------------------------------------------------------------------------------

    def give(self, session: SessionId, claim: ClaimRank) -> Given:
        """Answer who has claimed a session, as the grid has confirmed.

        What was pending may have been begun by its node since, so that all of it goes on as such.

        Args:
            session: which.
            claim: by which it is the asker's.
        """
        copy = self._sessions.get(session)
        if copy is None or not may_give(copy.rank, copy.claim, claim):
            return GONE
        held = copy.session
        if copy.claim is None:
            if held.machine.state in {State.ATTACHED, State.RESUMING}:
                held.machine.detach()
            held.pending.started = len(held.pending)
            copy.places = {number: self._cuts[number] for number in copy.cut.partitions if number in self._cuts}
        copy.claim = claim
        return Given(GiveStatus.GIVEN, export(held, 0.0), copy.places, copy.cut.unfinished)

    def forget(self, session: SessionId) -> None:
        """Keep no copy of a session."""
        copy = self._sessions.get(session)
        if copy is not None:
            self._drop(copy)

    def sessions(self) -> list[SessionId]:
        """List the sessions of which there are copies."""
        return list(self._sessions)

    def _drop(self, copy: Copy) -> None:
        self.size -= copy.size
        del self._slots[copy.slot]
        del self._sessions[copy.session.id]
        self._left_out.add(copy.slot)

    # --- Frames -------------------------------------------------------------------------------------------------------

    def apply(self, frame: Record) -> None:
        """Take in the next frame.

        Args:
            frame: see ``read_frame``.

        Raises:
            InvalidExport: it is none, not the next one, or the copies are not what they should be. None of them can be
                relied on any more then.
        """
        log, sequence = frame.integer("log"), frame.integer("sequence", 1)
        if sequence != self.sequence + 1 or (self.sequence and log != self.log):
            raise InvalidExport(f"frame {sequence} of log {log} came after {self.sequence} of {self.log}")
        self.log, self.sequence = log, sequence
        try:
            self._apply(frame)
        except (RemoteProtocolError, LocalProtocolError, KeyError, IndexError, TypeError, ValueError) as error:
            raise InvalidExport(f"a frame does not go with the copies: {error!r}") from None
        self._runs.forget()

    def _apply(self, frame: Record) -> None:
        self._is_complete = True
        for number, run in read_runs(frame):
            self._runs.add(number, run)
        for slot in frame.integers("gone"):
            self._give_up(slot)
        for row in frame.rows("whole"):
            self._add(row, frame)
        steps = [read_steps(row, frame) for row in frame.rows("steps")]
        for each in steps:
            self._take_steps(each)
        self._bound_grown()
        for row in frame.rows("changes"):
            self._change(row, frame)
        acked = frame.integers("acked")
        for slot, packet in zip(acked[::2], acked[1::2], strict=True):
            self._acknowledge(slot, PacketId(packet))
        for number, event in read_cuts(frame).items():
            if event is None:
                self._cuts.pop(number, None)
            else:
                self._cuts[number] = event
        self._check([each.checked for each in steps], frame.integer("check"))

    def _check(self, slots: Iterable[int], check: int) -> None:
        """Compare how far some sessions are numbered with what the live node says."""
        found = [self._find(slot) for slot in slots]
        if self._is_complete and check != sum(copy.session.machine.last_numbered for copy in found if copy is not None):
            raise InvalidExport("the copies count other packets than the sessions")

    def _find(self, slot: int) -> Copy | None:
        """Return the copy of a slot; None if it is not to be changed, as it was given already, or given up.

        Raises:
            KeyError: there never was one.
        """
        copy = self._slots.get(slot)
        if copy is None and slot not in self._left_out:
            raise KeyError(slot)
        if copy is None or copy.claim:
            self._is_complete = False
            return None
        return copy

    def _give_up(self, slot: int) -> None:
        copy = self._find(slot)
        if copy is not None:
            self._drop(copy)
        self._left_out.discard(slot)

    def _add(self, row: JsonValue, frame: Record) -> None:
        match row:
            case [int(slot), place, int(epoch), cut] if slot not in self._slots:
                session = restore(frame.body("whole", place), 0.0)
                session.machine.stand(session.machine.standing())
                self.forget(session.id)
                self._left_out.discard(slot)
                copy = Copy(session, slot, Epoch(epoch), read_cut(cut, frame, "whole"))
                self._slots[slot] = self._sessions[session.id] = copy
                self.size += copy.size
                if slot in self.refused:
                    self.refused.remove(slot)
                self._bound(copy)
            case _:
                frame.fail("whole", "a list of sessions")

    def _take_steps(self, steps: Steps) -> None:
        """Do with the packets of some sessions what was done at their node."""
        step, argument, slots, _ = steps
        if step == NUMBER:
            self._number(self._runs[argument], slots)
        elif step == PUSH:
            self._push(self._runs[argument], slots)
        elif step == TAKE:
            self._take(argument, slots)
        elif step == FOLD:
            self._fold(slots)
        else:
            raise ValueError(f"there is no step {step!r}")

    def _copies_of(self, slots: Iterable[int]) -> list[Copy]:
        """Find the copies that are to be changed."""
        copies = self._slots
        found: list[Copy] = []
        for slot in slots:
            copy = copies.get(slot)
            if copy is None or copy.claim:
                self._find(slot)  # which tells whether that is right
            else:
                found.append(copy)
        return found

    def _number(self, run: Run, slots: Sequence[int]) -> None:
        """Number a run for sessions, of which each has its share of the bytes."""
        share = run.size // max(1, len(slots)) + PACKET_BYTES
        for copy in self._copies_of(slots):
            copy.buffer.follow(run)
            self._grow(copy, share)

    def _push(self, run: Run, slots: Sequence[int]) -> None:
        """Have a run wait for sessions; mostly it is taken in the same frame."""
        for copy in self._copies_of(slots):
            outbox = copy.session.machine.outbox
            before = outbox.bytes
            outbox.push(run)
            self._grow(copy, outbox.bytes - before)

    def _take(self, packets: int, slots: Sequence[int]) -> None:
        """Number what has waited longest for sessions."""
        several = max(1, len(slots))
        for copy in self._copies_of(slots):
            outbox, follow = copy.session.machine.outbox, copy.buffer.follow
            before, kept = outbox.bytes, 0
            for run in outbox.take(packets=packets, size=ALL):
                follow(run)
                kept += run.size // several + PACKET_BYTES
            self._grow(copy, outbox.bytes - before + kept)

    def _fold(self, slots: Sequence[int]) -> None:
        for copy in self._copies_of(slots):
            outbox = copy.session.machine.outbox
            before = outbox.bytes
            outbox.conflate()
            self._grow(copy, outbox.bytes - before)

    def _grow(self, copy: Copy, more: int) -> None:
        """Count bytes; that there are too many is looked at when all of the frame's steps are taken."""
        copy.size += more
        self.size += more
        if self.size > self._most_bytes > 0:
            self._grown[copy.slot] = copy

    def _bound_grown(self) -> None:
        for copy in self._grown.values():
            if self._slots.get(copy.slot) is copy:
                self._bound(copy)
        self._grown.clear()

    def _change(self, row: JsonValue, frame: Record) -> None:
        changes = read_changes(row, frame)
        copy = self._find(changes.slot)
        if copy is None:
            return
        session, before = copy.session, copy.session.pending.bytes
        machine, answers, pending = session.machine, session.answers, session.pending
        pending.started = changes.done
        pending.finish()
        for work in changes.asked:
            pending.put(work)
        received, newest, settled, refused = changes.counts
        machine.received = PacketId(received)
        session.newest = RequestNumber(newest)
        for each in changes.unseen:
            match each:
                case [int(packet), int(first), int(last)]:
                    answers.unseen.append((packet, RequestNumber(first), RequestNumber(last)))
                case _:
                    frame.fail("changes", "a list of changes")
        if changes.rest is not None:
            self._stand(copy, changes.rest)
        if changes.recorded is not None:
            _record(session, changes.recorded)
        session.settled()
        answers.settled, answers.refused = RequestNumber(settled), refused
        if changes.cut is not None:
            copy.cut = changes.cut
        self._resize(copy, copy.size + pending.bytes - before)

    def _stand(self, copy: Copy, rest: list[JsonValue]) -> None:
        session = copy.session
        match rest:
            case [
                [str(state), int(discarded), generation, bool(proven), int(conflated), bool(spared)],
                int(declared),
                declaring,
                [*supports],
                int(token_generation),
                int(epoch),
            ] if generation is None or isinstance(generation, int):
                session.machine.stand(Standing(state, discarded, generation, proven, conflated, spared))
                session.declared = GridGeneration(declared)
                session.declaring = _declaring(declaring)
                session.supports = word_set(tuple([each for each in supports if isinstance(each, str)]))
                session.token_generation = TokenGeneration(token_generation)
                copy.epoch = Epoch(epoch)
            case _:
                raise ValueError("what is written of a session is of another form")

    def _acknowledge(self, slot: int, packet: PacketId) -> None:
        copy = self._find(slot)
        if copy is None:
            return
        machine = copy.session.machine
        before = machine.resend_bytes
        machine.buffer.acknowledge(packet)
        if before:
            own = machine.waiting_bytes + copy.session.pending.bytes + COPY_BYTES
            kept = max(0, copy.size - own)
            self._resize(copy, own + kept * machine.resend_bytes // before)

    # --- Bounds -------------------------------------------------------------------------------------------------------

    def _resize(self, copy: Copy, size: int) -> None:
        self.size += size - copy.size
        copy.size = size
        self._bound(copy)

    def _bound(self, copy: Copy) -> None:
        if 0 < self._most_bytes < self.size:
            self._drop(copy)
            self.refused.append(copy.slot)

    @property
    def cuts(self) -> Mapping[int, EventId]:
        """How far the node had come in each partition."""
        return self._cuts


def _record(session: ServerSession, recorded: list[JsonValue]) -> None:
    """Take in what has changed of what the grid holds of a session, too."""
    match recorded:
        case [int(generation), int(attempt), properties, partitions, selections, handlers]:
            session.stored_generation = GridGeneration(generation)
            session.attempt = Attempt(attempt)
        case _:
            raise ValueError("what is recorded of a session is of another form")
    match properties:
        case None:
            pass
        case dict():
            session.properties = {name: value for name, value in properties.items() if isinstance(value, str)}
        case _:
            raise ValueError("what is recorded of properties is of another form")
    match partitions:
        case None:
            pass
        case [*numbers]:
            session.publish_partitions = frozenset(each for each in numbers if isinstance(each, int))
        case _:
            raise ValueError("what is recorded of partitions is of another form")
    match selections:
        case None:
            pass
        case [[*removed], [*added]]:
            texts = [[each for each in row if isinstance(each, str)] for row in (removed, added)]
            session.selections = session.selections.changed(texts[0], texts[1])
        case _:
            raise ValueError("what is recorded of selections is of another form")
    if isinstance(handlers, dict):
        counts = {selector: count for selector, count in handlers.items() if isinstance(count, int)}
        session.handlers = counts or NO_HANDLERS


def _declaring(value: JsonValue) -> tuple[int, GridGeneration] | None:
    match value:
        case None:
            return None
        case [int(packet), int(known)]:
            return packet, GridGeneration(known)
    raise ValueError("what is being declared is of another form")
