"""How two nodes meet on a new connection: each says who it is, and the one that was dialled decides first.

```text
dials                                       listens
  │ ── TLS, each with its certificate ──────── │
  │ ── hello ────────────────────────────────▶ │  the certificate's name? the cluster? the run? a version? one link?
  │ ◀───────────────────── hello, or refuse ── │  up
up, or hangs up
```
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from gateway.adapters.peers.frames import HELLO_BYTES, Frame, FrameError, FrameReader, FrameType
from gateway.adapters.peers.hello import Hello, Refused, agreed, names_of
from gateway.catalogue.refusals import LinkRefusal
from gateway.core.types import NodeId
from gateway.core.wire.errors import GatewayError

REFUSAL_SECONDS: Final = 1.0
"""For which somebody who is refused may take to read that."""

_READ_BYTES: Final = HELLO_BYTES


def write(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write to a connection that may have broken, though nobody has been told yet: uvloop raises RuntimeError then.

    Raises:
        ConnectionError: it has.
    """
    if writer.is_closing():
        raise ConnectionError("it is closed")
    writer.write(data)


class NotGreeted(GatewayError):
    """There will be no link.

    Attributes:
        reason: why.
        peer: the node that the other side claims to be; empty if it did not say.
        told: whether the other side said so, not this one.
    """

    def __init__(self, reason: LinkRefusal, detail: str, *, peer: str = "", told: bool = False) -> None:
        super().__init__(detail)
        self.reason = reason
        self.peer = peer
        self.told = told


class Stranger:
    """A connection whose other end has not said who it is.

    Args:
        reader: of its socket.
        writer: of its socket.

    Attributes:
        reader: as given.
        writer: as given.
        frames: what has come and was not read.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.frames = FrameReader(HELLO_BYTES)

    def write(self, greeting: Hello | Refused) -> None:
        """Say something.

        Raises:
            OSError: the connection is closed.
        """
        write(self.writer, greeting.encode())

    async def hello(self) -> Hello:
        """Wait for the other side's hello.

        Raises:
            NotGreeted: it refused, or said something else.
            OSError: the connection broke.
        """
        try:
            frame = await self._frame()
            if frame.type is FrameType.REFUSE:
                refused = Refused.decode(frame.body)
                raise NotGreeted(refused.reason, refused.detail or refused.reason.value, told=True)
            if frame.type is not FrameType.HELLO:
                raise FrameError(f"a {frame.type.name.lower()} in place of a hello")
            return Hello.decode(frame.body)
        except FrameError as error:
            raise NotGreeted(LinkRefusal.MALFORMED, str(error)) from None

    async def refuse(self, refused: Refused) -> None:
        """Say that there will be no link, and hang up."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(REFUSAL_SECONDS):
                self.write(refused)
                await self.writer.drain()
                self.writer.close()
                await self.writer.wait_closed()
        self.abort()

    def abort(self) -> None:
        """Hang up."""
        self.writer.transport.abort()

    def check_certificate(self, hello: Hello) -> None:
        """Compare who the other side claims to be with its certificate; without TLS there is nothing to compare.

        Raises:
            NotGreeted: it is for another node.
        """
        tls: Any = self.writer.get_extra_info("ssl_object")
        if tls is None:
            return
        names = names_of(tls.getpeercert())
        if hello.node.node not in names:
            shown = ", ".join(sorted(names)) or "nobody"
            raise NotGreeted(
                LinkRefusal.NAME,
                f"its certificate is for {shown}, and it says that it is the node {hello.node.node}",
                peer=hello.node.node,
            )

    async def _frame(self) -> Frame:
        while (frame := self.frames.next()) is None:
            data = await self.reader.read(_READ_BYTES)
            if not data:
                raise NotGreeted(
                    LinkRefusal.SILENT,
                    "it hung up and did not say why; its log may tell, if it refuses the certificate",
                )
            self.frames.feed(data)
        return frame


def check_hello(ours: Hello, theirs: Hello) -> int:
    """Compare two hellos, and choose the version of the protocol.

    Raises:
        NotGreeted: they do not fit.
    """
    name = theirs.node.node
    if not ours.cluster:
        raise NotGreeted(LinkRefusal.NOT_READY, "this node has not reached its grid yet", peer=name)
    if theirs.cluster != ours.cluster:
        raise NotGreeted(
            LinkRefusal.CLUSTER,
            f"{name} is of the cluster {theirs.cluster}, and {ours.node.node} of {ours.cluster}: they have other grids",
            peer=name,
        )
    if theirs.node.node == ours.node.node:
        raise NotGreeted(
            LinkRefusal.OLD_RUN, f"both nodes are called {name}; a name is for one node of a cluster", peer=name
        )
    protocol = agreed(ours.protocols, theirs.protocols)
    if protocol is None:
        raise NotGreeted(
            LinkRefusal.PROTOCOL,
            f"{name} speaks the versions {sorted(theirs.protocols)}, and {ours.node.node} {sorted(ours.protocols)}",
            peer=name,
        )
    return protocol


def check_expected(theirs: Hello, expected: NodeId) -> None:
    """Make sure that who was dialled is who answered; of another run of that node the node table may tell later.

    Raises:
        NotGreeted: it is another node.
    """
    if theirs.node.node != expected:
        raise NotGreeted(
            LinkRefusal.OLD_RUN,
            f"{theirs.node} answered in place of {expected}; does link_advertise of {expected} lead elsewhere?",
            peer=theirs.node.node,
        )
