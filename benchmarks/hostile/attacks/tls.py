"""Handshakes of TLS that cost the node a signature and the attacker some bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from dataclasses import dataclass
from typing import Final

from benchmarks.hostile.attack import Attack, Attacker, Needs
from benchmarks.hostile.attacks import tls_messages
from benchmarks.hostile.connection import Lost, trusting_context

TITLE: Final = "TLS"

TLS: Final = Needs(tls=True)

SOCKETS: Final = 4_000

_LANES: Final = 64
"""Side by side: where the node's queue of connections is full, one waits for a second and the others go on."""

_REPLY_BYTES: Final = 80
"""That a client sends after the node's part of a handshake, about: a change of keys and its end."""


def canned_hello() -> bytes:
    """Make a ClientHello of TLS 1.3, once: it can be sent any number of times."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusting_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


@dataclass(frozen=True, kw_only=True)
class HeldHellos(Attack):
    """Many sockets with a ClientHello or a part of it; all are held, then reset and opened anew.

    Attributes:
        part: of the ClientHello that is sent, up to 1.
    """

    part: float

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""
        whole = canned_hello()
        hello = whole[: int(len(whole) * self.part)]
        number = attacker.target.scaled(SOCKETS)
        held: list[socket.socket] = []

        async def once() -> None:
            held.append(await attacker.dial(hello))
            attacker.effort.done += 1
            if len(held) >= number:
                for each in held:
                    each.close()
                held.clear()

        attacker.begin(seconds)
        await attacker.at_once(attacker.again_and_again(once) for _ in range(_LANES))


@dataclass(frozen=True, kw_only=True)
class GoneHellos(Attack):
    """A ClientHello, and hung up when the answer begins: who resets earlier is gone before the node has read it."""

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""
        hello, loop = canned_hello(), asyncio.get_running_loop()

        async def once() -> None:
            peer = await attacker.dial(hello)
            try:
                attacker.effort.received += len(await loop.sock_recv(peer, 1))
                attacker.effort.done += 1
            except OSError as error:
                raise Lost(f"read: {type(error).__name__}") from error
            finally:
                peer.close()

        attacker.begin(seconds)
        await attacker.at_once(attacker.again_and_again(once) for _ in range(_LANES))


@dataclass(frozen=True, kw_only=True)
class Handshakes(Attack):
    """Whole handshakes and hung up, as fast as it goes; the attacker pays its part."""

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""
        bytes_each = len(canned_hello()) + _REPLY_BYTES

        async def once() -> None:
            connection = await attacker.connect()
            attacker.effort.sent += bytes_each
            attacker.effort.done += 1
            attacker.drop(connection)

        attacker.begin(seconds)
        await attacker.at_once(attacker.again_and_again(once) for _ in range(_LANES))


ATTACKS: Final = (
    HeldHellos(
        name="tls-hellos", about="one canned ClientHello on each of 4,000 sockets", counts="hellos", part=1, needs=TLS
    ),
    HeldHellos(
        name="tls-half-hellos",
        about="half a ClientHello on each of 4,000 sockets",
        counts="hellos",
        part=0.5,
        needs=TLS,
    ),
    GoneHellos(
        name="tls-gone",
        about="a ClientHello, and hung up after the first byte of the answer",
        counts="hellos",
        needs=TLS,
    ),
    Handshakes(name="tls-handshakes", about="whole handshakes, and hung up", counts="handshakes", needs=TLS),
    *tls_messages.ATTACKS,
)
