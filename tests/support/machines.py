"""Session machines in the states that unit tests begin with."""

from __future__ import annotations

import orjson

from gateway.core.stream.machine import Received, SessionMachine, StreamParameters
from gateway.core.stream.runs import Outgoing
from gateway.core.stream.transitions import Role
from gateway.core.types import PacketId, RequestNumber
from gateway.core.wire import codec
from gateway.core.wire.errors import RemoteProtocolError
from gateway.core.wire.packets import SessionPacket, Subscribe

PARAMETERS = StreamParameters(
    resend_packets=4,
    resend_bytes=1000,
    message_bytes=1000,
    ack_packets=3,
    ack_delay=0.25,
    ping_interval=20.0,
    ping_timeout=45.0,
)
PLENTY = 1 << 20
NOW = 100.0


def body(name: str, folded: int = 0) -> bytes:
    mark = b'"folded":%d,' % folded if folded else b""
    return b'%b"n":"%b"}' % (mark, name.encode())


def reply(name: str) -> Outgoing:
    return Outgoing(None, body(name))


def update(topic: str, name: str) -> Outgoing:
    return Outgoing(topic, body(name))


def numbered(name: str, number: int, received: int | None = None, *, folded: int = 0) -> bytes:
    return codec.number(body(name, folded), number, received)


def array(first: bytes, *others: str | bytes) -> bytes:
    """A message of several session packets: only the first is numbered; the others by name, or by body."""
    return b"[%b]" % b",".join([first, *(b"{" + (body(each) if isinstance(each, str) else each) for each in others)])


def incoming(number: int, received: int | None = None) -> SessionPacket:
    acknowledgement = None if received is None else PacketId(received)
    return SessionPacket(PacketId(number), acknowledgement, Subscribe(RequestNumber(number), "a"))


def bodies(*numbers: int) -> list[Received]:
    return [incoming(number).body for number in numbers]


def opened(role: Role = Role.SERVER, parameters: StreamParameters = PARAMETERS) -> SessionMachine:
    machine = SessionMachine(role, parameters)
    machine.open(NOW)
    return machine


def sending(*names: str, role: Role = Role.SERVER, parameters: StreamParameters = PARAMETERS) -> SessionMachine:
    """A machine that has written these replies and awaits their acknowledgement."""
    machine = opened(role, parameters)
    for name in names:
        machine.submit(reply(name))
    machine.flush(PLENTY)
    return machine


def resuming(machine: SessionMachine) -> SessionMachine:
    machine.receive([], NOW)  # the peer has been heard: it knows the numbering
    machine.detach()
    machine.resume()
    return machine


def violation(items: list[Received]) -> RemoteProtocolError:
    assert isinstance(items[-1], RemoteProtocolError)
    return items[-1]


def ids(messages: list[bytes]) -> list[int]:
    """Ids of the session packets in messages, in order."""
    found: list[int] = []
    for message in messages:
        content = orjson.loads(message)
        last: int | None = None
        for packet in content if isinstance(content, list) else [content]:
            if "type" in packet:
                continue  # a link packet; the bodies of these tests have no type
            last = packet["id"] if last is None else packet.get("id", last + 1)
            found.append(last)
    return found
