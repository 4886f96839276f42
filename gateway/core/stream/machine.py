"""The session machine: reliability of one session over any number of connections, for both ends (protocol section 5).

It has three inputs, the application (``submit`` and the state changes), the network (``receive``) and the timer
(``tick``), and does no I/O: what is to be written comes out of ``flush`` as messages, when to call ``tick`` comes out
of ``next_deadline``, and what happened comes back as values. Times are seconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from gateway.core.stream.byte_form import Bodies, Record, write_record
from gateway.core.stream.export import RUNS, RunReader, RunWriter
from gateway.core.stream.outbox import Outbox
from gateway.core.stream.parameters import StreamParameters
from gateway.core.stream.resend import ResendBuffer
from gateway.core.stream.sender import Sender
from gateway.core.stream.transitions import ATTACHED, Input, Role, State, step
from gateway.core.types import JsonValue, PacketId, TokenGeneration
from gateway.core.wire import codec
from gateway.core.wire.codes import OUT_OF_ORDER
from gateway.core.wire.errors import RemoteProtocolError
from gateway.core.wire.packets import (
    Ack,
    Backoff,
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
from gateway.core.wire.topology_packets import Topology

__all__ = ["Received", "SessionMachine", "StreamParameters"]

Received: TypeAlias = SessionBody | Ping | GoAway | Topology | Error | Bye | RemoteProtocolError
"""What ``receive`` hands on: new session packets in order, and the link packets that concern the application.

A violation of the protocol is handed on as a value, the last one: what came before it in the same message counts.
"""


_PING: Final = codec.encode_link(Ping())
"""A ping that hands nothing along, as nearly all do."""

_EXPORTED: Final = (
    "role",
    "state",
    "bounds",
    "times",
    "next",
    "kept",
    "sent",
    "received",
    "acknowledged",
    "waiting",
    "folded",
    "conflated",
    "spared",
    "discarded",
    "duplicates",
    "silent",
    "ack_due",
    "ping_pending",
    "ack_owed",
    "pong_owed",
    "links",
    "generation",
    "proven",
    RUNS,
)
"""The fields of an exported machine; with a change of them ``byte_form.VERSION`` grows."""


class Standing(NamedTuple):
    """Where a machine stands, besides what its buffer and its outbox hold, and what ends with its connection.

    Attributes:
        state: value of ``State``.
        discarded: see ``SessionMachine``.
        generation: of the token in the welcome that began the present numbering.
        proven: whether the peer has been heard in it.
        conflated: updates replaced on this connection.
        spared: whether what waits is not to be folded for now.
    """

    state: str
    discarded: int
    generation: int | None
    proven: bool
    conflated: int
    spared: bool


class SessionMachine(Sender):
    """One end of a session.

    Args:
        role: which end; only the server pings, and only it goes on numbering for an absent peer.
        parameters: the numbers to work with.

    Attributes:
        role: as given.
        state: where the machine stands; see ``transitions``.
        received: id of the last session packet received in order.
        discarded: session packets dropped because the peer was away for longer than the buffers reach; since the last
            restart.
        duplicates: session packets that came again and were ignored.
    """

    __slots__ = (
        "_generation",
        "_heard",
        "_ping_pending",
        "_proven",
        "duplicates",
    )

    def __init__(self, role: Role, parameters: StreamParameters) -> None:
        super().__init__(role, parameters)
        self.duplicates = 0
        self._heard = 0.0
        self._ping_pending = False
        self._generation: TokenGeneration | None = None
        """Generation of the token in the welcome that began the present numbering; None if nobody told."""
        self._proven = False
        """Whether the peer has been heard in the present numbering."""

    def __repr__(self) -> str:
        return (
            f"<SessionMachine {self.role.value} {self.state.value} received={self.received} sent={self._sent} "
            f"kept={self._buffer.count} waiting={self._outbox.count}>"
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

    def detach(self) -> None:
        """The connection is gone. A server numbers what waits, so that a reattach brings it."""
        attached = self.state is State.ATTACHED
        self.state = step(self.state, Input.DETACH)
        self._links = ()
        self._ack_due = None
        self._ping_pending = self._ack_owed = self._pong_owed = False
        if attached and self.role is Role.SERVER:
            self._number_for_absent()

    def give_up(self) -> None:
        """Keep nothing any more for a peer that is away: it is told of a gap when it is back (rung 4)."""
        if self.state is State.DETACHED:
            self._overflow()

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
        return self._buffer.count

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
        self._buffer.restart()
        self._sent = self._acknowledged = self.received = PacketId(0)
        self.discarded = 0

    def forget_kept(self) -> None:
        """Keep nothing that was numbered, because a packet of it must not be sent again (protocol 4.8.1).

        The numbers stay: ``oldest`` says from now on that what the peer misses cannot be resent.
        """
        self._buffer.forget()
        self._sent = self.last_numbered

    def adopt(self, parameters: StreamParameters) -> None:
        """Work with other numbers from now on, as the peer's welcome says."""
        self.parameters = parameters
        self._buffer.bound(packets=parameters.resend_packets, size=parameters.resend_bytes)

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
        return max(0, self.last_numbered - received) + self._outbox.count + self.discarded

    def close(self) -> None:
        """End the session and drop everything but the link packets that wait."""
        self.state = step(self.state, Input.CLOSE)
        self._outbox.clear()
        self._buffer.forget()
        self._sent = self.last_numbered

    # --- The network --------------------------------------------------------------------------------------------------

    def receive(self, packets: Iterable[Packet], now: float) -> list[Received]:
        """Take in what came over the attached connection.

        Returns:
            What concerns the application, in order; every session packet exactly once. The last one is a
            ``RemoteProtocolError`` if a packet had no place here (PROTOCOL_ERROR), or if the predecessor of a session
            packet is missing (OUT_OF_ORDER; resuming mends it); the connection must then be closed.
        """
        if self.state is not ATTACHED:
            self.state = step(self.state, Input.RECEIVE)
        self._heard = now
        self._ping_pending = False
        self._proven = True
        handed_on: list[Received] = []
        try:
            for packet in packets:
                if isinstance(packet, Ack):  # by far the most frequent packet of a client that only listens
                    self._acknowledge(packet.received)
                elif isinstance(packet, SessionPacket):
                    if self._take_in(packet, now):
                        handed_on.append(packet.body)
                elif isinstance(packet, Pong):
                    self._acknowledge(packet.received)
                else:
                    handed_on.append(self._accept(packet))
        except RemoteProtocolError as violation:
            # Its trace leads to this very list, and the packets and the connection would stay with it.
            handed_on.append(violation.with_traceback(None))
        return handed_on

    def receive_ack(self, received: PacketId, now: float) -> bool:
        """Take in a message that is nothing but an acknowledgement: one ``Ack`` or ``Pong``, with less around it.

        Returns:
            Whether a ping was waiting for a sign of life, so that ``next_deadline`` may be earlier now.

        Raises:
            RemoteProtocolError: the peer acknowledges a packet that was never sent; the connection must be closed.
        """
        if self.state is not ATTACHED:
            self.state = step(self.state, Input.RECEIVE)
        pinged, self._ping_pending = self._ping_pending, False
        self._heard = now
        self._proven = True
        self._acknowledge(received)
        return pinged

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
            self._ack_due = now + self.parameters.ack_delay
        if packet.id - self._acknowledged >= self.parameters.ack_packets:
            self._ack_due = now
        return True

    def _acknowledge(self, received: PacketId) -> None:
        # Not the last numbered but the last written packet counts: after a reattach those in between have yet to be
        # resent, and without them ``_resend`` would never come to an end.
        if received > self._sent:
            raise RemoteProtocolError(f"packet {received} is acknowledged, but {self._sent} is the last that was sent")
        self._buffer.acknowledge(received)

    def _accept(self, packet: LinkPacket) -> Ping | GoAway | Topology | Error | Bye:
        match packet:
            case Ping():
                self._pong_owed = True
                return packet
            case Error() | Bye():
                return packet
            case GoAway() | Topology() if self.role is Role.CLIENT:
                return packet
            case _:
                name = type(packet).__name__.lower()
                raise RemoteProtocolError(f"a {name} packet has no place on a connection that is attached already")

    # --- The timer ----------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Tell when ``tick`` has something to do; None for never in this state."""
        if self.state is not State.ATTACHED:
            return None
        # Comparisons take a third of what ``min`` takes, and this is asked twice for each message.
        parameters, ack_due = self.parameters, self._ack_due
        wait = parameters.ping_timeout
        if self.role is Role.SERVER and not self._ping_pending and parameters.ping_interval < wait:
            wait = parameters.ping_interval
        silence = self._heard + wait
        return silence if ack_due is None or silence < ack_due else ack_due

    def tick(self, now: float) -> bool:
        """Do what is due: an acknowledgement or a ping, to be written by ``flush``.

        Returns:
            True if the peer has been silent for too long and the connection should be given up (PING_TIMEOUT).
        """
        self.state = step(self.state, Input.TICK)
        if self.state is not State.ATTACHED:
            return False
        if now >= self._heard + self.parameters.ping_timeout:
            return True
        if self._ack_due is not None and now >= self._ack_due:
            self._ack_due = None
            self._ack_owed = True
        if self.role is Role.SERVER and not self._ping_pending and now >= self._heard + self.parameters.ping_interval:
            self.ping()
        return False

    def ping(self, token: str | None = None, backoff: Backoff | None = None) -> None:
        """Ask for a sign of life, and hand a renewed token and new advice along if there is any."""
        self._ping_pending = True
        if token is None and backoff is None:
            self._links += (_PING,)
        else:
            self.send_link(Ping(token, backoff))

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

    # --- As a copy ----------------------------------------------------------------------------------------------------

    def standing(self) -> Standing:
        """Tell what there is to know besides buffer and outbox of a machine that may lose its connection now."""
        outbox = self._outbox
        return Standing(
            self.state.value, self.discarded, self._generation, self._proven, outbox.conflated, outbox.spared
        )

    def stand(self, standing: Standing) -> None:
        """Be where another machine stands; what was of a connection is forgotten, as a copy has none.

        Raises:
            ValueError: there is no such state.
        """
        self.state = State(standing.state)
        self.discarded = standing.discarded
        self._generation = None if standing.generation is None else TokenGeneration(standing.generation)
        self._proven = standing.proven
        self._outbox.conflated = standing.conflated
        self._outbox.spared = standing.spared
        self._links = ()
        self._ack_due = None
        self._ping_pending = self._ack_owed = self._pong_owed = False

    # --- As bytes -----------------------------------------------------------------------------------------------------

    def export(self, now: float) -> bytes:
        """Write everything there is to know about this machine.

        Args:
            now: the time; what is written says how long before or after it things were and will be, because another
                node has another clock.

        Returns:
            A record (``byte_form``), for ``restore``.
        """
        parameters, outbox = self.parameters, self._outbox
        bodies = Bodies()
        runs = RunWriter(bodies)
        fields: dict[str, JsonValue] = {
            "role": self.role.value,
            "state": self.state.value,
            "bounds": [
                parameters.resend_packets,
                parameters.resend_bytes,
                parameters.message_bytes,
                parameters.ack_packets,
            ],
            "times": [parameters.ack_delay, parameters.ping_interval, parameters.ping_timeout],
            "next": self._buffer.next,
            # Without what has been acknowledged, which is nobody's any more.
            "kept": runs.put(self._buffer.after(PacketId(0))),
            "sent": self._sent,
            "received": self.received,
            "acknowledged": self._acknowledged,
            "waiting": runs.put(outbox.runs()),
            "folded": outbox.is_folded,
            "conflated": outbox.conflated,
            "spared": outbox.spared,
            "discarded": self.discarded,
            "duplicates": self.duplicates,
            "silent": now - self._heard,
            "ack_due": None if self._ack_due is None else self._ack_due - now,
            "ping_pending": self._ping_pending,
            "ack_owed": self._ack_owed,
            "pong_owed": self._pong_owed,
            "links": [bodies.put(link) for link in self._links],
            "generation": self._generation,
            "proven": self._proven,
            RUNS: runs.rows,
        }
        return write_record(fields, bodies)

    @classmethod
    def restore(cls, data: bytes, now: float) -> SessionMachine:
        """Make a machine that cannot be told from the exported one.

        Args:
            data: what ``export`` returned.
            now: the time by the clock with which the machine goes on.

        Raises:
            InvalidExport: it is nothing of the kind.
        """
        record = Record(data, "machine", _EXPORTED)
        runs = RunReader(record)
        packets, size, message_bytes, ack_packets = record.integers("bounds", 4)
        ack_delay, ping_interval, ping_timeout = record.numbers("times", 3)
        parameters = StreamParameters(
            resend_packets=packets,
            resend_bytes=size,
            message_bytes=message_bytes,
            ack_packets=ack_packets,
            ack_delay=ack_delay,
            ping_interval=ping_interval,
            ping_timeout=ping_timeout,
        )
        machine = cls(record.member("role", Role), parameters)
        machine.state = record.member("state", State)
        next_id = PacketId(record.integer("next", 1))
        kept = runs.get("kept")
        machine._buffer = ResendBuffer.holding(kept, packets=packets, size=size, next_id=next_id)
        if machine._buffer.count >= next_id:
            record.fail("kept", "packets below the next id")
        least = machine._buffer.oldest - 1 if machine.state is State.ATTACHED else 0
        machine._sent = PacketId(record.integer("sent", least, next_id - 1))
        machine.received = PacketId(record.integer("received"))
        machine._acknowledged = PacketId(record.integer("acknowledged", 0, machine.received))
        machine._outbox = Outbox.holding(
            runs.get("waiting"),
            folded=record.boolean("folded"),
            conflated=record.integer("conflated"),
            spared=record.boolean("spared"),
        )
        machine.discarded = record.integer("discarded")
        machine.duplicates = record.integer("duplicates")
        machine._heard = now - record.number("silent")
        ack_due = record.optional_number("ack_due")
        machine._ack_due = None if ack_due is None else now + ack_due
        machine._ping_pending = record.boolean("ping_pending")
        machine._ack_owed = record.boolean("ack_owed")
        machine._pong_owed = record.boolean("pong_owed")
        machine._links = tuple([record.body("links", place) for place in record.rows("links")])
        generation = record.optional_integer("generation")
        machine._generation = None if generation is None else TokenGeneration(generation)
        machine._proven = record.boolean("proven")
        return machine
