"""The session machine: reliability of one session over any number of connections, for both ends (protocol section 5).

It has three inputs, the application (``submit`` and the state changes), the network (``receive``) and the timer
(``tick``), and does no I/O: what is to be written comes out of ``flush`` as messages, when to call ``tick`` comes out
of ``next_deadline``, and what happened comes back as values. Times are seconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from gateway.core import codec
from gateway.core.codes import OUT_OF_ORDER
from gateway.core.errors import RemoteProtocolError
from gateway.core.frozen import FrozenSession, SessionPolicy
from gateway.core.outbox import Outbox, Outgoing
from gateway.core.packets import (
    Ack,
    Bye,
    Error,
    GoAway,
    LinkPacket,
    Packet,
    Ping,
    Pong,
    SessionBody,
    SessionPacket,
)
from gateway.core.resend import ResendBuffer
from gateway.core.transitions import Input, Role, State, step
from gateway.core.types import PacketId, TokenGeneration

__all__ = ["FrozenSession", "Received", "SessionMachine", "SessionPolicy"]

Received: TypeAlias = SessionBody | Ping | GoAway | Error | Bye | RemoteProtocolError
"""What ``receive`` hands on: new session packets in order, and the link packets that concern the application.

A violation of the protocol is handed on as a value, the last one: what came before it in the same message counts.
"""


class SessionMachine:
    """One end of a session.

    Args:
        role: which end; only the server pings, and only it goes on numbering for an absent peer.
        policy: the numbers to work with.

    Attributes:
        role: as given.
        state: where the machine stands; see ``transitions``.
        received: id of the last session packet received in order.
        discarded: session packets dropped because the peer was away for longer than the buffers reach; since the last
            restart.
        duplicates: session packets that came again and were ignored.
    """

    __slots__ = (
        "_ack_due",
        "_ack_owed",
        "_acknowledged",
        "_buffer",
        "_generation",
        "_heard",
        "_links",
        "_outbox",
        "_ping_pending",
        "_pong_owed",
        "_proven",
        "_sent",
        "discarded",
        "duplicates",
        "policy",
        "received",
        "role",
        "state",
    )

    def __init__(self, role: Role, policy: SessionPolicy) -> None:
        self.role = role
        self.policy = policy
        self.state = State.FRESH
        self.received = PacketId(0)
        self.discarded = 0
        self.duplicates = 0
        self._buffer = ResendBuffer(packets=policy.resend_packets, size=policy.resend_bytes)
        self._outbox = Outbox()
        self._sent = PacketId(0)
        """Id of the last packet written on this connection; lags behind the buffer after a reattach."""
        self._acknowledged = PacketId(0)
        """Id of the last received packet that the peer has been told of."""
        self._links: list[bytes] = []
        self._heard = 0.0
        self._ack_due: float | None = None
        self._ping_pending = False
        # Answers that are owed are flags and not queued packets: a peer that asks and never reads cannot pile them up.
        self._ack_owed = False
        self._pong_owed = False
        self._generation: TokenGeneration | None = None
        """Generation of the token in the welcome that began the present numbering; None if nobody told."""
        self._proven = False
        """Whether the peer has been heard in the present numbering."""

    def __repr__(self) -> str:
        return (
            f"<SessionMachine {self.role.value} {self.state.value} received={self.received} sent={self._sent} "
            f"kept={len(self._buffer)} waiting={len(self._outbox)}>"
        )

    # --- What others may know ---------------------------------------------------------------------------------------

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
        return len(self._buffer)

    @property
    def resend_bytes(self) -> int:
        """Bytes of the bodies kept for resending."""
        return self._buffer.bytes

    @property
    def waiting(self) -> int:
        """Packets not yet numbered."""
        return len(self._outbox)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the bodies not yet numbered."""
        return self._outbox.bytes

    @property
    def conflated(self) -> int:
        """Updates replaced by newer ones of their topic since the last ``open``, ``reattach`` or ``restart``."""
        return self._outbox.conflated

    @property
    def is_settled(self) -> bool:
        """Whether nothing waits and the peer has acknowledged everything: a connection may be left without loss."""
        return not self._outbox and not self._buffer

    @property
    def has_output(self) -> bool:
        """Whether ``flush`` may have something to write."""
        return bool(
            self._outbox or self._links or self._ack_owed or self._pong_owed or self._sent < self._buffer.next - 1
        )

    # --- The application ----------------------------------------------------------------------------------------------

    def open(self, now: float, *, generation: TokenGeneration | None = None) -> None:
        """Begin numbering on the connection that is there: of a new session, or of one that failed over to this node.

        Args:
            now: the time.
            generation: of the token in the welcome that tells the client; see ``can_reattach``. Servers only.
        """
        self._attach(Input.OPEN, now)
        self._begin_numbering(generation)

    def submit(self, outgoing: Outgoing, *, snapshot: bool = False) -> None:
        """Hand in a session packet.

        A server numbers it at once while its peer is away, so that a reattach brings it; once its buffer is full the
        state becomes GAP and packets are counted in ``discarded`` instead. A client keeps it until it is attached.

        Args:
            outgoing: the body.
            snapshot: it is part of the answer to a selection and does not count against the outbox's bounds.
        """
        state = self.state = step(self.state, Input.SUBMIT)
        if state is State.ATTACHED or self.role is Role.CLIENT:
            if snapshot:
                self._outbox.allow(outgoing)
            else:
                self._outbox.push(outgoing)
        elif state is State.GAP:
            self.discarded += 1
        elif self._buffer.full:
            self._overflow()
            self.discarded += 1
        else:
            self._buffer.append(outgoing)

    def exceeds(self, *, packets: int, size: int) -> bool:
        """Tell whether the outbox is above its bounds (P9); snapshots do not count."""
        return self._outbox.exceeds(packets=packets, size=size)

    def conflate(self) -> None:
        """Fold what waits to the newest update per topic until it has gone out, though the transport takes it."""
        self._outbox.conflate()

    def send_link(self, packet: LinkPacket) -> None:
        """Have a link packet written before everything else that waits."""
        self._links.append(codec.encode_link(packet))

    def detach(self) -> None:
        """The connection is gone. A server numbers what waits, so that a reattach brings it."""
        attached = self.state is State.ATTACHED
        self.state = step(self.state, Input.DETACH)
        self._links.clear()
        self._ack_due = None
        self._ping_pending = self._ack_owed = self._pong_owed = False
        if attached and self.role is Role.SERVER:
            while self._outbox:
                if self._buffer.full:
                    self._overflow()
                    return
                self._buffer.append(self._outbox.pop())

    def resume(self) -> None:
        """A connection has come back and the two sides begin to agree on how to go on."""
        self.state = step(self.state, Input.RESUME)

    def can_reattach(self, *, received: PacketId, oldest: PacketId, generation: TokenGeneration | None = None) -> bool:
        """Decide rung 1 before anything is resent (protocol 5.4).

        If the welcome that began the present numbering never arrived, the peer's ids belong to the numbering before it,
        and comparing them with ours would skip over what was lost. The token tells: the peer presents an older one than
        that welcome handed out. Where nobody told generations, only a peer that was heard since is believed.

        Args:
            received: id of the last packet the peer received.
            oldest: id of the oldest packet the peer can resend.
            generation: of the token that the peer presented.

        Returns:
            True if neither side misses a packet that the other no longer holds.
        """
        return (
            self.state is State.RESUMING
            and self._same_numbering(generation)
            and self._buffer.covers(received)
            and oldest <= self.received + 1
        )

    def reattach(self, *, received: PacketId, now: float) -> int:
        """Go on where both sides are, on the new connection (rung 1).

        Args:
            received: id of the last packet the peer received; what comes after it is sent again.
            now: the time.

        Returns:
            How many packets will be sent again.

        Raises:
            RemoteProtocolError: the buffer does not reach back that far; ``can_reattach`` tells beforehand.
        """
        if not self._buffer.covers(received):
            raise RemoteProtocolError(
                f"cannot resend from packet {received + 1}: packets {self.oldest} to {self.last_numbered} are kept"
            )
        self._attach(Input.REATTACH, now)
        self._buffer.acknowledge(received)
        self._sent = received
        return len(self._buffer)

    def restart(self, now: float, *, generation: TokenGeneration | None = None) -> None:
        """Begin numbering anew in both directions on the connection that is there (rung 4).

        What waited or was kept is dropped: the server follows with snapshots, the client with its unanswered requests.

        Args:
            now: the time.
            generation: as for ``open``.
        """
        self._attach(Input.RESTART, now)
        self._begin_numbering(generation)
        self._outbox.clear()
        self._buffer = ResendBuffer(packets=self.policy.resend_packets, size=self.policy.resend_bytes)
        self._sent = self._acknowledged = self.received = PacketId(0)
        self.discarded = 0

    def adopt(self, policy: SessionPolicy) -> None:
        """Work with other numbers from now on, as the peer's welcome says."""
        self.policy = policy
        self._buffer.bound(packets=policy.resend_packets, size=policy.resend_bytes)

    def lost(self, received: PacketId, *, generation: TokenGeneration | None = None) -> int | None:
        """Count the packets that a peer which received up to *received* will never get if numbering restarts.

        Args:
            received: id of the last packet the peer received.
            generation: of the token that the peer presented; see ``can_reattach``.

        Returns:
            The number; None if the peer's id belongs to an earlier numbering, so that nobody can know.
        """
        if not self._same_numbering(generation):
            return None
        return max(0, self.last_numbered - received) + len(self._outbox) + self.discarded

    def close(self) -> None:
        """End the session and drop everything but the link packets that wait."""
        self.state = step(self.state, Input.CLOSE)
        self._outbox.clear()
        self._buffer = ResendBuffer(packets=1, size=1, next_id=self._buffer.next)
        self._sent = self.last_numbered

    # --- The network --------------------------------------------------------------------------------------------------

    def receive(self, packets: Iterable[Packet], now: float) -> list[Received]:
        """Take in what came over the attached connection.

        Returns:
            What concerns the application, in order; every session packet exactly once. The last one is a
            ``RemoteProtocolError`` if a packet had no place here (PROTOCOL_ERROR), or if the predecessor of a session
            packet is missing (OUT_OF_ORDER; resuming mends it); the connection must then be closed.
        """
        self.state = step(self.state, Input.RECEIVE)
        self._heard = now
        self._ping_pending = False
        self._proven = True
        handed_on: list[Received] = []
        try:
            for packet in packets:
                if isinstance(packet, SessionPacket):
                    if self._take_in(packet, now):
                        handed_on.append(packet.body)
                elif isinstance(packet, Ack | Pong):
                    self._acknowledge(packet.received)
                else:
                    handed_on.append(self._accept(packet))
        except RemoteProtocolError as violation:
            handed_on.append(violation)
        return handed_on

    def _take_in(self, packet: SessionPacket, now: float) -> bool:
        if packet.received is not None:
            self._acknowledge(packet.received)
        if packet.id <= self.received:
            self.duplicates += 1
            return False
        if packet.id > self.received + 1:
            raise RemoteProtocolError(
                f"packet {packet.id} came after packet {self.received}: one in between is missing", close=OUT_OF_ORDER
            )
        self.received = packet.id
        if self._ack_due is None:
            self._ack_due = now + self.policy.ack_delay
        if packet.id - self._acknowledged >= self.policy.ack_packets:
            self._ack_due = now
        return True

    def _acknowledge(self, received: PacketId) -> None:
        # Not the last numbered but the last written packet counts: after a reattach those in between have yet to be
        # resent, and without them ``_resend`` would never come to an end.
        if received > self._sent:
            raise RemoteProtocolError(f"packet {received} is acknowledged, but {self._sent} is the last that was sent")
        self._buffer.acknowledge(received)

    def _accept(self, packet: LinkPacket) -> Ping | GoAway | Error | Bye:
        match packet:
            case Ping():
                self._pong_owed = True
                return packet
            case Error() | Bye():
                return packet
            case GoAway() if self.role is Role.CLIENT:
                return packet
            case _:
                name = type(packet).__name__.lower()
                raise RemoteProtocolError(f"a {name} packet has no place on a connection that is attached already")

    # --- The timer ----------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Tell when ``tick`` has something to do; None for never in this state."""
        if self.state is not State.ATTACHED:
            return None
        silence = self._heard + self.policy.ping_timeout
        if self.role is Role.SERVER and not self._ping_pending:
            silence = min(silence, self._heard + self.policy.ping_interval)
        return silence if self._ack_due is None else min(silence, self._ack_due)

    def tick(self, now: float) -> bool:
        """Do what is due: an acknowledgement or a ping, to be written by ``flush``.

        Returns:
            True if the peer has been silent for too long and the connection should be given up (PING_TIMEOUT).
        """
        self.state = step(self.state, Input.TICK)
        if self.state is not State.ATTACHED:
            return False
        if now >= self._heard + self.policy.ping_timeout:
            return True
        if self._ack_due is not None and now >= self._ack_due:
            self._ack_due = None
            self._ack_owed = True
        if self.role is Role.SERVER and not self._ping_pending and now >= self._heard + self.policy.ping_interval:
            self.ping()
        return False

    def ping(self, token: str | None = None) -> None:
        """Ask for a sign of life, and hand a renewed token along if there is one."""
        self._ping_pending = True
        self.send_link(Ping(token))

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
        self.state = step(self.state, Input.FLUSH)
        packets = self._links
        self._links = []
        if self.state is State.ATTACHED:
            # What was queued on purpose is written in any case; answers wait for room like everything else.
            room -= sum(map(len, packets))
            if self._pong_owed and room > 0:
                packets.append(codec.encode_link(Pong(self.received)))
                room -= len(packets[-1])
                self._pong_owed = False
                self._told()
            has_room = room > 0
            if not has_room or self._buffer.full:
                self._outbox.conflate()
            if self._sent < self._buffer.next - 1:
                room = self._resend(packets, room)
            if self._outbox:
                self._number_new(packets, room)
            if self._ack_owed and has_room:
                packets.append(codec.encode_link(Ack(self.received)))
                self._told()
        return self._messages(packets)

    def _resend(self, packets: list[bytes], room: int) -> int:
        for number, outgoing in self._buffer.after(self._sent):
            if room <= 0:
                break
            packets.append(codec.number(outgoing.body, number, self._news()))
            room -= len(outgoing.body)
            self._sent = number
        return room

    def _number_new(self, packets: list[bytes], room: int) -> None:
        outbox, buffer = self._outbox, self._buffer
        # Numbering out of turn would be a gap; but ``_resend`` stops early only when it has left no room.
        while outbox and room > 0 and not buffer.full:
            outgoing = outbox.pop()
            self._sent = buffer.append(outgoing)
            packets.append(codec.number(outgoing.body, self._sent, self._news()))
            room -= len(outgoing.body)

    def _news(self) -> PacketId | None:
        """Return the acknowledgement to send along, once per news."""
        if self.received == self._acknowledged:
            return None
        self._told()
        return self.received

    def _told(self) -> None:
        self._acknowledged = self.received
        self._ack_due = None
        self._ack_owed = False

    def _messages(self, packets: list[bytes]) -> list[bytes]:
        if len(packets) <= 1:
            return packets
        messages: list[bytes] = []
        # An array has one byte more than its packets and a comma for each: two brackets, and no comma after the last.
        start, size = 0, 1
        for index, packet in enumerate(packets):
            size += len(packet) + 1
            if size > self.policy.message_bytes and index > start:
                messages.append(codec.join(packets[start:index]))
                start, size = index, len(packet) + 2
        messages.append(codec.join(packets[start:]))
        return messages

    # --- Inside -------------------------------------------------------------------------------------------------------

    def _attach(self, event: Input, now: float) -> None:
        self.state = step(self.state, event)
        self._heard = now
        self._ping_pending = self._pong_owed = False
        # What was received before is told by the welcome or the resume packet itself.
        self._told()
        self._outbox.conflated = 0

    def _begin_numbering(self, generation: TokenGeneration | None) -> None:
        self._generation = generation
        self._proven = False

    def _same_numbering(self, generation: TokenGeneration | None) -> bool:
        if generation is None or self._generation is None:
            return self._proven
        return generation >= self._generation

    def _overflow(self) -> None:
        """Drop everything: an absent peer is owed more than may be kept for it."""
        self.state = step(self.state, Input.OVERFLOW)
        # The numbers stay, because ``lost`` needs to know how many the peer was owed.
        self._outbox_to_discarded()
        next_id = self._buffer.next
        self._buffer = ResendBuffer(packets=self.policy.resend_packets, size=self.policy.resend_bytes, next_id=next_id)

    def _outbox_to_discarded(self) -> None:
        self.discarded += self._outbox.clear()

    # --- As a value ---------------------------------------------------------------------------------------------------

    def freeze(self) -> FrozenSession:
        """Return everything there is to know about this machine as a value."""
        return FrozenSession(
            role=self.role,
            policy=self.policy,
            state=self.state,
            next=self._buffer.next,
            kept=tuple(self._buffer),
            sent=self._sent,
            received=self.received,
            acknowledged=self._acknowledged,
            waiting=tuple(self._outbox),
            folded=self._outbox.is_folded,
            allowance=self._outbox.allowance,
            conflated=self._outbox.conflated,
            discarded=self.discarded,
            duplicates=self.duplicates,
            heard=self._heard,
            ack_due=self._ack_due,
            ping_pending=self._ping_pending,
            ack_owed=self._ack_owed,
            pong_owed=self._pong_owed,
            links=tuple(self._links),
            generation=self._generation,
            proven=self._proven,
        )

    @classmethod
    def thaw(cls, frozen: FrozenSession) -> SessionMachine:
        """Make a machine that goes on exactly where the frozen one stood."""
        machine = cls(frozen.role, frozen.policy)
        machine.state = frozen.state
        machine._buffer = ResendBuffer.holding(
            frozen.kept, packets=frozen.policy.resend_packets, size=frozen.policy.resend_bytes, next_id=frozen.next
        )
        machine._sent = frozen.sent
        machine.received = frozen.received
        machine._acknowledged = frozen.acknowledged
        for outgoing in frozen.waiting:
            machine._outbox.push(outgoing)
        if frozen.folded:
            machine._outbox.conflate()
        machine._outbox.allowance = frozen.allowance
        machine._outbox.conflated = frozen.conflated
        machine.discarded = frozen.discarded
        machine.duplicates = frozen.duplicates
        machine._heard = frozen.heard
        machine._ack_due = frozen.ack_due
        machine._ping_pending = frozen.ping_pending
        machine._ack_owed = frozen.ack_owed
        machine._pong_owed = frozen.pong_owed
        machine._links = list(frozen.links)
        machine._generation = frozen.generation
        machine._proven = frozen.proven
        return machine
