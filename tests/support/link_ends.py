"""The ends of a link pair: what both have in common, and the client's (see ``link_pair``, and ``link_server``)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gateway.core.stream.machine import SessionMachine
from gateway.core.stream.runs import Outgoing
from gateway.core.stream.transitions import Role, State
from gateway.core.types import Attempt, RequestNumber, TokenGeneration
from gateway.core.wire import codec
from gateway.core.wire.codes import Numbering
from gateway.core.wire.errors import RemoteProtocolError
from gateway.core.wire.packets import (
    Ack,
    Notice,
    Packet,
    Ping,
    Pong,
    Publish,
    Reply,
    Resume,
    SessionBody,
    SessionPacket,
    Update,
    Welcome,
)

if TYPE_CHECKING:
    from tests.support.link_pair import LinkPair

PLENTY: Final = 1 << 20
"""Room of a transport that does not push back, in bytes."""


@dataclass(eq=False)
class Connection:
    """One connection: what is under way on it, and what has been done to it.

    Attributes:
        to_server: messages under way to the server.
        to_client: messages under way to the client.
        dead: nothing written arrives any more, though an end may not have noticed.
        tampered: a message was lost, doubled or moved, so that a violation of the protocol is no wonder.
        life: in which numbering the client was when it asked to resume.
    """

    to_server: deque[bytes] = field(default_factory=deque)
    to_client: deque[bytes] = field(default_factory=deque)
    dead: bool = False
    tampered: bool = False
    life: int = 0

    def cut(self) -> None:
        """Lose everything under way, and everything that is still going to be written."""
        self.dead = True
        self.to_server.clear()
        self.to_client.clear()


class Ledger:
    """What one end has numbered in one life of the numbering, to compare with what the other end gets.

    Attributes:
        numbered: body by packet id.
        acknowledged: last id that the sender has been told of; nothing up to it may be written again.
    """

    def __init__(self) -> None:
        self.numbered: dict[int, SessionBody] = {}
        self.acknowledged = 0

    def wrote(self, packet: SessionPacket) -> None:
        """Note a packet that was written, for the first time or again."""
        assert packet.id > self.acknowledged, f"packet {packet.id} was resent though it had been acknowledged"
        known = self.numbered.setdefault(packet.id, packet.body)
        assert known == packet.body, f"packet {packet.id} was written with two contents"
        assert len(self.numbered) == max(self.numbered), "a number was left out"

    def copy(self) -> Ledger:
        """Return another one that says the same."""
        other = Ledger()
        other.numbered, other.acknowledged = dict(self.numbered), self.acknowledged
        return other


class End:
    """What both ends have in common."""

    def __init__(self, pair: LinkPair, machine: SessionMachine) -> None:
        self.pair = pair
        self.machine = machine
        self.connection: Connection | None = None
        self.sent = Ledger()
        self.taken_in = 0
        """Session packets taken in, in this life of the numbering."""

    def flush(self, room: int) -> None:
        """Write what the machine has to write; a machine that has not begun has nothing."""
        if self.machine.state is State.FRESH:
            return
        self._write(self.machine.flush(room))

    def _write(self, messages: list[bytes]) -> None:
        if self.connection is None:
            assert not messages, "a machine without connection wrote something"
            return
        for message in messages:
            packets = self._decode_own(message)
            assert len(message) <= self.machine.parameters.message_bytes or len(packets) == 1
            for packet in packets:
                if isinstance(packet, SessionPacket):
                    self.sent.wrote(packet)
            if not self.connection.dead:
                (self.connection.to_client if self.is_server else self.connection.to_server).append(message)
        assert self.machine.unacknowledged <= self.machine.parameters.resend_packets

    def receive(self, packets: list[Packet]) -> None:
        """Take packets in; a violation is forgiven only on a connection that was tampered with."""
        connection = self.connection
        assert connection is not None
        for packet in packets:
            if isinstance(packet, SessionPacket | Ack | Pong) and packet.received is not None:
                self.sent.acknowledged = max(self.sent.acknowledged, packet.received)
        for item in self.machine.receive(packets, self.pair.now):
            if isinstance(item, RemoteProtocolError):
                assert connection.tampered, f"violation on a clean connection: {item}"
                self.pair.seen["violation"] += 1
                self.give_up()
                return
            self.take_in(item)

    def give_up(self) -> None:
        """Close the connection, or notice that it is gone."""
        if self.connection is not None:
            self.connection.cut()
            self.connection = None
            if self.machine.state is State.RESUMING:
                self.pair.seen["cut while resuming"] += 1
            self.machine.detach()
            if self.machine.state is State.GAP:
                self.pair.seen["gap"] += 1

    def tick(self) -> None:
        """Let the machine do what is due."""
        deadline = self.machine.next_deadline()
        if self.machine.tick(self.pair.now):
            assert deadline is not None
            assert deadline <= self.pair.now
            self.pair.seen["ping timeout"] += 1
            self.give_up()

    def restore(self, room: int) -> None:
        """Go on with a machine that was exported and restored, after comparing the two."""
        now = self.pair.now
        exported = self.machine.export(now)
        restored = SessionMachine.restore(exported, now)
        assert restored.export(now) == exported
        if self.machine.state is not State.FRESH:
            assert restored.flush(room) == self.machine.flush(room)
            assert restored.export(now) == self.machine.export(now)
        self.machine = SessionMachine.restore(exported, now)

    @property
    def is_server(self) -> bool:
        return self.machine.role is Role.SERVER

    def take_in(self, item: object) -> None:
        raise NotImplementedError

    def _decode_own(self, message: bytes) -> list[Packet]:
        return codec.decode_from_server(message) if self.is_server else codec.decode_from_client(message)


class ClientEnd(End):
    """A client and its application.

    Attributes:
        life: number of the numbering it is in; told beside the wire, by the connection's welcome.
        holds: generation of its token.
        unanswered: bodies by request number.
        answered: numbers of answered requests.
        values: last version by topic.
        notices: notices received in this life.
    """

    def __init__(self, pair: LinkPair, machine: SessionMachine) -> None:
        super().__init__(pair, machine)
        self.life = 0
        self.holds = TokenGeneration(1)
        self.attempt = 0
        self.next_request = 1
        self.unanswered: dict[int, Outgoing] = {}
        self.answered: list[int] = []
        self.values: dict[str, int] = {}
        self.notices: list[str] = []

    def publish(self) -> None:
        """Ask for something that must happen exactly once."""
        number = self.next_request
        self.next_request += 1
        body = codec.encode_request(Publish(RequestNumber(number), "t", b"%d" % number))
        self.unanswered[number] = Outgoing(None, body)
        self.machine.submit(self.unanswered[number])

    def reconnect(self) -> None:
        """Open a new connection and ask to resume."""
        self.give_up()
        connection = self.connection = Connection(life=self.life)
        self.machine.resume()
        self.attempt += 1
        self.machine.send_link(
            Resume(
                token=str(self.holds),
                attempt=Attempt(self.attempt),
                received=self.machine.received,
                oldest=self.machine.oldest,
            )
        )
        self.flush(PLENTY)
        self.pair.pending = connection

    def deliver(self, packets: list[Packet]) -> None:
        """Take a message in, the welcome first if one is due."""
        if self.machine.state is State.RESUMING:
            welcome = packets.pop(0) if packets else None
            assert self.connection is not None
            if not isinstance(welcome, Welcome):
                assert self.connection.tampered, f"{welcome} came before the welcome"
                self.give_up()
                return
            self._welcomed(welcome)
        self.receive(packets)

    def _welcomed(self, welcome: Welcome) -> None:
        machine = self.machine
        self.holds = TokenGeneration(max(self.holds, int(welcome.token)))
        if welcome.numbering is Numbering.KEPT:
            self.sent.acknowledged = max(self.sent.acknowledged, welcome.received)
            resent = machine.reattach(received=welcome.received, now=self.pair.now)
            assert resent == machine.last_numbered - welcome.received
        else:
            machine.restart(self.pair.now)
            self.life = int(welcome.session)
            self.sent = Ledger()
            self.taken_in = 0
            self.notices.clear()
            for outgoing in self.unanswered.values():
                machine.submit(outgoing)
        # The proof that the client holds the new token (protocol 10).
        machine.send_link(Ack(machine.received))

    def take_in(self, item: object) -> None:
        if isinstance(item, Ping):
            if item.token is not None:
                self.holds = TokenGeneration(max(self.holds, int(item.token)))
            return
        self.taken_in += 1
        assert item == self.pair.ledgers[self.life].numbered[self.taken_in], "a packet was skipped or doubled"
        match item:
            case Reply(request=request):
                assert self.unanswered.pop(request, None) is not None, f"request {request} was answered twice"
                self.answered.append(request)
            case Update(topic=topic, version=version, snapshot=snapshot, folded=folded):
                last = self.values.get(topic, 0)
                assert version >= last, f"{topic} went from version {last} to {version}"
                # Without ``snapshot`` the jump is told to the update (protocol 6.4).
                assert snapshot or version == last + folded + 1, f"{topic}: {last} to {version}, {folded} folded"
                self.pair.seen["folded"] += bool(folded)
                self.values[topic] = version
            case Notice(message=message):
                self.notices.append(message)
            case _:
                raise AssertionError(f"unexpected {item}")
