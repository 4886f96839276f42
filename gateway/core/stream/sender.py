"""The half of a session machine that sends: what waits, what is numbered, what is written (protocol section 5).

```text
submit ─▶ outbox ──number──▶ resend buffer ──▶ messages
             (flush, as far as transport and buffer have room)
```

Packets get their ids in ``ResendBuffer.number`` and nowhere else: by ``flush`` and ``send_now``, and for a peer that is
away as soon as they are submitted. A buffer of another kind can tell somebody of it (``tap``).

``machine.SessionMachine`` adds the half that hears the peer and the timer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from gateway.core.stream.messages import SharedFrame, compose
from gateway.core.stream.outbox import Outbox
from gateway.core.stream.parameters import StreamParameters
from gateway.core.stream.resend import ResendBuffer
from gateway.core.stream.runs import Outgoing, Run
from gateway.core.stream.transitions import ATTACHED, Input, Role, State, step
from gateway.core.types import PacketId
from gateway.core.wire import codec
from gateway.core.wire.packets import Ack, LinkPacket, Notice, NoticeCode, Pong

HEAD_BYTES: Final = 64
"""Most bytes around the text of a run in its message: two brackets, and two numbers of up to 16 digits with names."""


WITHHELD: Final = Outgoing(
    None,
    codec.encode_notice(Notice(NoticeCode.WITHHELD, "An update of a topic that this session may not select any more.")),
)
"""In the place of an update that was numbered before the right to its topic was withdrawn."""


class Sender:
    """What one end of a session sends, and what it has received as far as the peer has to be told of it.

    Args:
        role: which end; only a server goes on numbering for an absent peer.
        parameters: the numbers to work with.

    Attributes:
        role: as given.
        parameters: as given.
        state: where the machine stands; see ``transitions``.
        received: id of the last session packet received in order.
        discarded: session packets dropped because the peer was away for longer than the buffers reach; since the last
            restart.
    """

    __slots__ = (
        "_ack_due",
        "_ack_owed",
        "_acknowledged",
        "_buffer",
        "_links",
        "_outbox",
        "_pong_owed",
        "_sent",
        "discarded",
        "parameters",
        "received",
        "role",
        "state",
    )

    def __init__(self, role: Role, parameters: StreamParameters) -> None:
        self.role = role
        self.parameters = parameters
        self.state = State.FRESH
        self.received = PacketId(0)
        self.discarded = 0
        self._buffer = ResendBuffer(packets=parameters.resend_packets, size=parameters.resend_bytes)
        self._outbox = Outbox()
        self._sent = PacketId(0)
        """Id of the last packet written on this connection; lags behind the buffer after a reattach."""
        self._acknowledged = PacketId(0)
        """Id of the last received packet that the peer has been told of."""
        self._links: tuple[bytes, ...] = ()
        self._ack_due: float | None = None
        # Answers that are owed are flags and not queued packets: a peer that asks and never reads cannot pile them up.
        self._ack_owed = False
        self._pong_owed = False

    # --- What others may know -----------------------------------------------------------------------------------------

    @property
    def oldest(self) -> PacketId:
        """Id of the oldest packet that can be resent; the next id if none is kept."""
        return self._buffer.oldest

    @property
    def last_numbered(self) -> PacketId:
        """Id of the last packet that got a number; 0 for none."""
        return PacketId(self._buffer.next - 1)

    @property
    def unacknowledged(self) -> int:
        """Packets numbered and not yet acknowledged."""
        return self._buffer.count

    @property
    def resend_bytes(self) -> int:
        """Bytes of the bodies kept for resending."""
        return self._buffer.bytes

    @property
    def waiting(self) -> int:
        """Packets not yet numbered."""
        return self._outbox.count

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the bodies not yet numbered."""
        return self._outbox.bytes

    @property
    def conflated(self) -> int:
        """Updates replaced by newer ones of their topic since the last ``open``, ``reattach`` or ``restart``."""
        return self._outbox.conflated

    @property
    def room(self) -> tuple[int, int]:
        """Packets, and bytes after which no further one may begin, that would be kept if the peer left now."""
        packets, size = self._buffer.room
        return packets - self._outbox.count, size - self._outbox.bytes

    @property
    def is_settled(self) -> bool:
        """Whether nothing waits and the peer has acknowledged everything: a connection may be left without loss."""
        return not self._outbox.count and not self._buffer.count

    @property
    def has_output(self) -> bool:
        """Whether ``flush`` may have something to write."""
        return bool(
            self._outbox.count or self._links or self._ack_owed or self._pong_owed or self._sent < self._buffer.next - 1
        )

    @property
    def is_folded(self) -> bool:
        """Whether updates that wait are replaced by newer ones of their topics."""
        return self._outbox.is_folded

    @property
    def is_spared(self) -> bool:
        """Whether what waits is not folded though nothing more can be numbered; see ``submit_replay``."""
        return self._outbox.spared

    def tap(self, buffer: ResendBuffer, outbox: Outbox) -> None:
        """Go on with a buffer and an outbox of another kind, which tell somebody of what is done with them.

        Args:
            buffer: takes the place of the one that is here, with all that is in it.
            outbox: likewise.
        """
        self._buffer.move_to(buffer)
        self._outbox.move_to(outbox)
        self._buffer, self._outbox = buffer, outbox

    @property
    def buffer(self) -> ResendBuffer:
        """What is numbered and kept, for who makes a copy."""
        return self._buffer

    @property
    def outbox(self) -> Outbox:
        """What waits, for who makes a copy."""
        return self._outbox

    def kept(self) -> Iterator[Run]:
        """Yield the runs that are held here, which other sessions may hold as well: numbered ones and waiting ones."""
        yield from self._buffer.runs()
        yield from self._outbox.runs()

    # --- The application ----------------------------------------------------------------------------------------------

    def submit(self, outgoing: Outgoing) -> None:
        """Hand in the body of one session packet; see ``submit_run``."""
        self.submit_run(Run.of(outgoing))

    def submit_run(self, run: Run) -> None:
        """Hand in session packets.

        A server numbers them at once while its peer is away, so that a reattach brings them; once its buffer is full
        the state becomes GAP and packets are counted in ``discarded`` instead. A client keeps them until it is
        attached.

        Args:
            run: the bodies; kept as it is, so that sessions can share it.
        """
        state = self.state
        if state is not ATTACHED:
            state = self.state = step(state, Input.SUBMIT)
        if state is ATTACHED or self.role is Role.CLIENT:
            self._outbox.push(run)
        elif state is State.GAP:
            self.discarded += run.count
        elif self._buffer.number(run) is None:
            self._outbox.push(run)
            self._number_for_absent()

    def submit_replay(self, runs: Iterable[Run]) -> None:
        """Hand in what the peer has missed: until it has gone out, what waits is folded by ``conflate`` alone.

        Args:
            runs: in order; the peer is there.
        """
        for run in runs:
            self.submit_run(run)
        self._outbox.spare()

    def _number_for_absent(self) -> None:
        """Number what waits for a peer that is away; what does not fit is lost with all that is kept."""
        self._number_waiting(*self._buffer.room)
        if self._outbox.count:
            self._overflow()

    def exceeds(self, *, packets: int, size: int) -> bool:
        """Tell whether the outbox is above bounds (P9)."""
        return self._outbox.exceeds(packets=packets, size=size)

    def conflate(self) -> None:
        """Fold what waits to the newest update per topic until it has gone out, though the transport takes it."""
        self._outbox.conflate()

    def withhold(self, is_withdrawn: Callable[[str], bool]) -> None:
        """Send no update of some topics any more, not even one that was due before.

        What waits is forgotten. What has its number keeps it, so that nothing else is lost, and is sent (again, if it
        has been sent before) as a notice that stands in for it (protocol 6.5).

        Args:
            is_withdrawn: tells of a topic whether it is one of them.
        """
        self._outbox.withhold(is_withdrawn)
        self._buffer.withhold(is_withdrawn, WITHHELD)

    def send_link(self, packet: LinkPacket) -> None:
        """Have a link packet written before everything else that waits."""
        self._links += (codec.encode_link(packet),)

    # --- Output -------------------------------------------------------------------------------------------------------

    def flush(self, room: int) -> list[bytes]:
        """Number what may be numbered and hand out what is to be written now.

        Args:
            room: bytes the transport would like to take. With none, nothing is numbered and what waits is conflated
                until it can go out. Should there be too little for all that waits, the rest stays as it is: whether the
                transport takes that too, the next call tells.

        Returns:
            Messages, each of one or more packets; link packets come first, except for an acknowledgement that no
            session packet could carry.
        """
        attached = self.state is State.ATTACHED
        if not attached:
            self.state = step(self.state, Input.FLUSH)
        links, self._links = self._links, ()
        if not attached:
            return self._compose(links, self._sent, [], ())
        # What was queued on purpose is written in any case; answers wait for room like everything else.
        for link in links:
            room -= len(link)
        if self._pong_owed and room > 0:
            pong = codec.encode_link(Pong(self.received))
            links += (pong,)
            room -= len(pong)
            self._pong_owed = False
            self._told()
        buffer, outbox, first = self._buffer, self._outbox, self._sent
        has_room = room > 0
        if (not has_room or buffer.full) and not outbox.spared:
            outbox.conflate()
        runs: list[Run] = []
        if first < buffer.next - 1:
            runs, room = self._resend(room)
        # Numbering out of turn would be a gap; but ``_resend`` stops early only when it has left no room.
        if outbox.count and room > 0:
            packets, size = buffer.room
            runs += self._number_waiting(packets, min(room, size))
            self._sent = PacketId(buffer.next - 1)
        acks: tuple[bytes, ...] = ()
        if self._ack_owed and has_room and not runs:
            acks = (codec.encode_link(Ack(self.received)),)
            self._told()
        return self._compose(links, first, runs, acks)

    def send_now(self, copies: SharedFrame, room: int) -> bytes | None:
        """Number and write a run in one step, where nothing waits and all of it fits: ``submit_run`` and ``flush``.

        Args:
            copies: of the run, which sessions share.
            room: as for ``flush``.

        Returns:
            The only message there is to write; None if nothing was done, because it is not as simple as that.
        """
        buffer, run = self._buffer, copies.run
        if (
            self.state is not ATTACHED
            or run.size > room
            or self._outbox.count
            or self._links
            or self._pong_owed
            or self._sent != buffer.next - 1
            or (run.count > 1 and len(run.text) + HEAD_BYTES > self.parameters.message_bytes)
        ):
            return None
        first = buffer.number_untold(run) if copies.is_told else buffer.number(run)
        if first is None:
            return None
        self._sent = first + run.count - 1  # type: ignore[assignment]  # PacketId(…) would be a call
        received: PacketId | None = None
        if self.received != self._acknowledged:
            received = self.received
            self._told()
        return copies.message(first, received)

    def _compose(
        self, links: tuple[bytes, ...], sent: PacketId, runs: list[Run], acks: tuple[bytes, ...]
    ) -> list[bytes]:
        """Write messages; the first session packet among them carries what there is to acknowledge."""
        received: PacketId | None = None
        if runs and self.received != self._acknowledged:
            received = self.received
            self._told()
        return compose(links, PacketId(sent + 1), received, runs, acks, limit=self.parameters.message_bytes)

    def _resend(self, room: int) -> tuple[list[Run], int]:
        """Choose what is sent again now; returns the room that it leaves."""
        runs: list[Run] = []
        for run in self._buffer.after(self._sent):
            fitting = run.fitting(packets=run.count, size=room)
            if not fitting:
                break
            chosen = run if fitting == run.count else run.split(fitting)[0]
            runs.append(chosen)
            room -= chosen.size
            self._sent = PacketId(self._sent + fitting)
            if fitting < run.count:
                break
        return runs, room

    def _number_waiting(self, packets: int, size: int) -> list[Run]:
        """Number what waits, as far as it fits."""
        runs = self._outbox.take(packets=packets, size=size)
        for run in runs:
            self._buffer.append(run)
        return runs

    def _told(self) -> None:
        self._acknowledged = self.received
        self._ack_due = None
        self._ack_owed = False

    def _overflow(self) -> None:
        """Drop everything: an absent peer is owed more than may be kept for it."""
        self.state = step(self.state, Input.OVERFLOW)
        # The numbers stay, because ``lost`` needs to know how many the peer was owed.
        self._outbox_to_discarded()
        self._buffer.forget()

    def _outbox_to_discarded(self) -> None:
        self.discarded += self._outbox.clear()
