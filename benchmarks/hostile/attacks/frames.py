"""Floods of frames and packets that promise nothing: what reading alone may cost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks.hostile.attack import Attack, Attacker
from benchmarks.hostile.connection import ACK, Connection
from benchmarks.storm import wire

CHUNK_BYTES: Final = 65_536
"""Handed to the kernel at once: as much as a socket takes, so that the attacker's calls are few."""

MESSAGE_BYTES: Final = 65_000
"""Of the largest messages: a little below ``limit_message_bytes``."""

MANY: Final = 100
"""Connections of an attack that has many: what a browser's page or a small program opens without effort."""

DEEP: Final = 500
"""Arrays within each other in the deepest JSON that a parser still takes."""

_FINAL: Final = 0x80


def fragment(payload: bytes, *, first: bool = False, last: bool = False) -> bytes:
    """Write one masked frame of a text message that has several."""
    whole = wire.frame(payload, wire.Opcode.TEXT)
    return bytes([(wire.Opcode.TEXT if first else 0) | (_FINAL if last else 0)]) + whole[1:]


def in_fragments(message: bytes) -> bytes:
    """Write a text message in frames of one byte each."""
    end = len(message) - 1
    return b"".join(fragment(message[at : at + 1], first=at == 0, last=at == end) for at in range(len(message)))


def stuffed(content: bytes) -> bytes:
    """Write an acknowledgement with a field that nobody knows, which holds *content*: any JSON."""
    return b'{"type":"ack","received":0,"x":%b}' % content


@dataclass(frozen=True, kw_only=True)
class Flood(Attack):
    """The same bytes again and again, as fast as the node takes them; anew whenever it closes.

    Attributes:
        piece: what is sent again and again: whole frames.
        before: sent once on each connection, such as the first frame of a message that never ends.
        greeted: whether a session is opened first; else a stranger sends it after the upgrade.
        connections: side by side.
        deaf: whether what the node answers is thrown away, its close frame included: only the end of TCP ends it.
        ends: pieces for which the node closes the connection; the attacker then sends just these, waits for the close,
            and begins anew. 0 if there is no such number.
    """

    piece: bytes
    before: bytes = b""
    greeted: bool = True
    connections: int = 1
    deaf: bool = False
    ends: int = 0

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""
        repeat = self.ends or max(1, CHUNK_BYTES // len(self.piece))
        chunk = self.piece * repeat

        async def send(connection: Connection) -> None:
            await connection.send(self.before)
            while not attacker.over:
                await connection.send(chunk)
                attacker.effort.done += repeat
                if self.ends:
                    await asyncio.sleep(_CLOSE_SECONDS)
                # The node's answer has its turn, and so have the other connections.
                await asyncio.sleep(0)

        async def once() -> None:
            connection = await (attacker.session() if self.greeted else attacker.upgraded())
            # Whichever ends first: a node that has closed reads nothing more, so that sending would wait without end.
            read = connection.drain_input() if self.deaf else _read(connection)
            both = [asyncio.ensure_future(send(connection)), asyncio.ensure_future(read)]
            try:
                done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in both:
                    each.cancel()
                await asyncio.gather(*both, return_exceptions=True)
                attacker.drop(connection)
            for each in done:
                each.result()

        attacker.begin(seconds)
        number = attacker.target.scaled(self.connections)
        await attacker.at_once(attacker.again_and_again(once) for _ in range(number))


async def _read(connection: Connection) -> None:
    while True:
        await connection.skim()


PONG: Final = wire.frame(b"", wire.Opcode.PONG)
PING: Final = wire.frame(b"", wire.Opcode.PING)
LONG_PING: Final = wire.frame(b"p" * 125, wire.Opcode.PING)
OPENING: Final = fragment(b" ", first=True)
EMPTY: Final = fragment(b"")
BYTE: Final = fragment(b" ")

_BORNE: Final = 1_000
"""Frames without a message between two messages; more than 1,024 close the connection (protocol 1.5)."""

_ACK: Final = wire.frame(ACK)
_HALVES: Final = fragment(ACK[:1], first=True), fragment(ACK[1:], last=True)
"""The two halves of an acknowledgement, between which fragments are empty."""

_LARGE: Final = wire.frame(stuffed(b'"%b"' % (b"x" * (MESSAGE_BYTES - len(ACK)))))
_CLOSE_SECONDS: Final = 0.5
"""For the node to close a connection for what it has been sent; if it does not, it is sent more."""

_DEEP: Final = wire.frame(
    stuffed(b"[%b]" % b",".join([b"[" * DEEP + b"]" * DEEP] * ((MESSAGE_BYTES - 100) // (2 * DEEP + 1))))
)
_TOO_DEEP: Final = wire.frame(b"[" * MESSAGE_BYTES)
_WIDE: Final = wire.frame(stuffed(b"[%b]" % b",".join([b"{}"] * ((MESSAGE_BYTES - 100) // 3))))
_NAMES: Final = wire.frame(stuffed(b"{%b}" % b",".join(b'"%05d":0' % number for number in range(6_000))))
_PACKETS: Final = wire.frame(b"[%b]" % b",".join([ACK] * ((MESSAGE_BYTES - 2) // (len(ACK) + 1))))

TITLE: Final = "Frames and messages"

_TOO_MANY: Final = 1_100
"""Frames without a message for which a connection is closed: a little more than are borne."""

_TOO_LONG: Final = 66_000
"""Fragments of a byte for which it is: a little more than the longest message."""

ONE: Final = (1,)
BOTH: Final = (1, MANY)


def _floods(
    name: str,
    about: str,
    piece: bytes,
    numbers: tuple[int, ...] = BOTH,
    *,
    counts: str = "messages",
    before: bytes = b"",
    greeted: bool = True,
    deaf: bool = False,
    ends: int = 0,
) -> Iterator[Flood]:
    """Describe a kind of flood by one connection, by many, or both."""
    for number in numbers:
        many = number > 1
        yield Flood(
            name=f"{name}-many" if many else name,
            about=f"{about}, {f'{number} connections' if many else '1 connection'}",
            counts=counts,
            piece=piece,
            before=before,
            greeted=greeted,
            connections=number,
            deaf=deaf,
            ends=ends,
        )


_CLOSE: Final = wire.frame(b"\x03\xe8", wire.Opcode.CLOSE)
_BINARY: Final = wire.frame(ACK, wire.Opcode.BINARY)
_LARGE_BINARY: Final = wire.frame(b"\x00" * MESSAGE_BYTES, wire.Opcode.BINARY)
_PONG_PACKET: Final = wire.frame(b'{"type":"pong","received":0}')
_ERROR_PACKET: Final = wire.frame(b'{"type":"error","code":"bad_packet","message":"x"}')
_UNKNOWN: Final = wire.frame(b'{"type":"x"}')
_PING_PACKET: Final = wire.frame(b'{"type":"ping"}')
_SHORT_ARRAY: Final = wire.frame(b"[%b]" % b",".join([b'{"type":"ping"}'] * 230))
"""As short as messages that pass in front of others."""

ATTACKS: Final = (
    *_floods("pongs", "WebSocket pongs, in a session", PONG, ONE, counts="frames", ends=_TOO_MANY),
    *_floods("pings", "WebSocket pings, in a session", PING, ONE, counts="frames", ends=_TOO_MANY),
    *_floods(
        "long-pings", "WebSocket pings of 125 bytes, in a session", LONG_PING, ONE, counts="frames", ends=_TOO_MANY
    ),
    *_floods(
        "borne-pongs", "1,000 WebSocket pongs and an acknowledgement, in turn", PONG * _BORNE + _ACK, counts="turns"
    ),
    *_floods(
        "borne-pings", "1,000 WebSocket pings and an acknowledgement, in turn", PING * _BORNE + _ACK, counts="turns"
    ),
    *_floods(
        "borne-fragments",
        "acknowledgements with 1,000 empty fragments in each",
        _HALVES[0] + EMPTY * _BORNE + _HALVES[1],
        counts="turns",
    ),
    *_floods(
        "stranger-pings",
        "WebSocket pings before the first packet",
        PING,
        counts="frames",
        greeted=False,
        ends=_TOO_MANY,
    ),
    *_floods(
        "empty-fragments",
        "empty fragments of a message that does not end",
        EMPTY,
        counts="frames",
        before=OPENING,
        ends=_TOO_MANY,
    ),
    *_floods(
        "stranger-bytes",
        "fragments of a byte before the first packet",
        BYTE,
        counts="frames",
        before=OPENING,
        greeted=False,
        ends=_TOO_LONG,
    ),
    *_floods(
        "bytes",
        "fragments of a byte, of a message that does not end",
        BYTE,
        counts="frames",
        before=OPENING,
        ends=_TOO_LONG,
    ),
    *_floods("acks-in-bytes", "acknowledgements in fragments of a byte", in_fragments(ACK)),
    *_floods("acks", "acknowledgements, a message each", _ACK),
    *_floods("ping-packets", "ping packets, which are answered", _PING_PACKET),
    *_floods("pong-packets", "pong packets, which nobody asked for", _PONG_PACKET, (MANY,)),
    *_floods("error-packets", "error packets, which end a session's connection", _ERROR_PACKET, (MANY,), ends=1),
    *_floods("binary", "binary messages, in a session", _BINARY, (MANY,), ends=1),
    *_floods(
        "stranger-binary",
        "binary messages of 64 KB before the first packet",
        _LARGE_BINARY,
        (MANY,),
        greeted=False,
        deaf=True,
        ends=1,
    ),
    *_floods("behind-close", "messages of 64 KB behind a close frame", _LARGE, (MANY,), before=_CLOSE, deaf=True),
    *_floods(
        "stranger-behind-close",
        "WebSocket pongs behind a close frame, before the first packet",
        PONG,
        (MANY,),
        counts="frames",
        before=_CLOSE,
        greeted=False,
        deaf=True,
    ),
    *_floods("arrays", "arrays of 2,300 acknowledgements", _PACKETS),
    *_floods("short-arrays", "arrays of 230 ping packets, just under 4 KiB", _SHORT_ARRAY, (MANY,)),
    *_floods("large-messages", "messages of 64 KB with a long text", _LARGE),
    *_floods("deep-json", "messages of 64 KB, 500 arrays deep", _DEEP),
    *_floods(
        "too-deep-json",
        "messages of 64 KB, 65,000 arrays deep, before the first packet",
        _TOO_DEEP,
        greeted=False,
        ends=1,
    ),
    *_floods("wide-json", "messages of 64 KB with 21,000 empty objects", _WIDE),
    *_floods("names-json", "messages of 64 KB with 6,000 names", _NAMES, ONE),
    *_floods("undecodable", "packets that nobody knows, in a session", _UNKNOWN, (MANY,), ends=1),
    *_floods(
        "stranger-undecodable", "packets that nobody knows, as the first", _UNKNOWN, (MANY,), greeted=False, ends=1
    ),
)
