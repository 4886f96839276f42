"""What a node writes to its backup and to its clients, in the order in which it does: whose turn comes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gateway.adapters.memory.peers import MemoryPeerLinks
from gateway.adapters.websocket.connection import WebSocketConnection
from gateway.adapters.websocket.writer import FrameWriter
from gateway.app.cluster.mirror.gate import GatedConnection
from gateway.app.session.session import Session
from gateway.core.mirror.copies import Copies
from gateway.core.mirror.frames import MIRROR, read_frame
from gateway.core.types import NodeId, NodeRef
from gateway.core.wire import codec
from gateway.core.wire.packets import Ack, SessionPacket
from tests.support.nodes import TestNode


def note_written(patch: pytest.MonkeyPatch, note: Callable[[FrameWriter, bytes], None]) -> None:
    """Have *note* called with each message that leaves for a client, just before it does."""
    write, write_all = FrameWriter.write, FrameWriter.write_all.__func__  # type: ignore[attr-defined]

    def written(connection: FrameWriter, message: bytes) -> None:
        note(connection, message)
        write(connection, message)

    def all_written(kind: type[FrameWriter], connections: Sequence[FrameWriter], messages: Sequence[bytes]) -> None:
        for connection, message in zip(connections, messages, strict=True):
            note(connection, message)
        write_all(kind, connections, messages)

    patch.setattr(FrameWriter, "write", written)
    patch.setattr(FrameWriter, "write_all", classmethod(all_written))


class WriteOrder:
    """Makes a copy of what the backup has been written, and compares each message with it that leaves for a client.

    Whatever the copy lacks at that moment would be lost if the process were killed behind it.

    Args:
        patch: of the test; nodes have to be started behind this.
        name: of the node that is watched.

    Attributes:
        node: the node, as soon as it runs.
        copies: of what has been written to its backup so far.
        frames: how many that were.
        late: what left for a client before it was written to the backup.
        compared: messages that were compared, by what they hold.
    """

    def __init__(self, patch: pytest.MonkeyPatch, name: str) -> None:
        self.node: TestNode | None = None
        self.copies = Copies()
        self.frames = 0
        self.late: list[str] = []
        self.compared: Counter[str] = Counter()
        self._name = NodeId(name)
        send = MemoryPeerLinks.send

        def sent(links: MemoryPeerLinks, to: NodeRef, kind: str, record: bytes) -> int:
            sequence = send(links, to, kind, record)
            if kind == MIRROR and links.me.node == self._name:
                self._take_in(record)
            return sequence

        patch.setattr(MemoryPeerLinks, "send", sent)
        note_written(patch, self._compare)

    def _take_in(self, record: bytes) -> None:
        frame = read_frame(record)
        if frame.integer("sequence", 1) == 1:
            self.copies = Copies()
        self.copies.apply(frame)
        self.frames += 1

    def _session_of(self, connection: object) -> Session | None:
        for session in () if self.node is None else self.node.gateway.node.sessions:
            own = session.connection
            if own is connection or (isinstance(own, GatedConnection) and own._connection is connection):
                return session
        return None

    def _compare(self, connection: FrameWriter, message: bytes) -> None:
        session = self._session_of(connection) if isinstance(connection, WebSocketConnection) else None
        copy = None if session is None else self.copies.copy_of(session.id)
        if copy is None:
            return
        machine = copy.session.machine
        for packet in codec.decode_from_server(message):
            said: Any = packet.body if isinstance(packet, SessionPacket) else packet
            kind = type(said).__name__
            self.compared[kind] += 1
            if isinstance(packet, SessionPacket) and packet.id > machine.last_numbered:
                self.late.append(f"packet {packet.id}, {kind}; the copy is at {machine.last_numbered}")
            received = packet.received if isinstance(packet, SessionPacket | Ack) else None
            if received is not None and received > machine.received:
                self.late.append(f"{kind} acknowledges {received}; the copy has {machine.received}")
