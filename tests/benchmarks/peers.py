"""What the tests of the peers share."""

from __future__ import annotations

import base64
import os
import socket
from pathlib import Path
from typing import TypeVar

import pytest

from benchmarks.placement import Placement
from benchmarks.runner import INSTALLED
from benchmarks.systems.base import TOPIC_MARK, Endpoint, SystemUnavailable, SystemUnderTest
from benchmarks.systems.nats import Nats
from benchmarks.systems.socketio import SocketIo, is_installed
from tests.support.times import scaled

CORES = Placement(server=min(os.sched_getaffinity(0)), others=max(os.sched_getaffinity(0)))
"""Also of a machine with one, for nothing is measured here."""

System = TypeVar("System", bound=SystemUnderTest)


def prepared(system: System, scratch: Path) -> System:
    """Prepare *system*, or skip the test with what is missing; nothing is downloaded for a test."""
    folder = scratch
    if isinstance(system, SocketIo):
        folder = INSTALLED / system.name
        if not is_installed(folder):
            pytest.skip("the npm packages of Socket.IO are not installed; `make bench ONLY=fanout` installs them")
    if isinstance(system, Nats):
        folder = INSTALLED / system.name
    try:
        system.prepare(folder)
    except SystemUnavailable as reason:
        pytest.skip(str(reason))
    return system


def upgraded(endpoint: Endpoint, topic: str) -> socket.socket:
    """Subscribe to *topic* by hand; returns the socket right behind the server's handshake."""
    target = endpoint.subscribe_target.replace(TOPIC_MARK, topic)
    key = base64.b64encode(bytes(16)).decode()
    subscriber = socket.create_connection((endpoint.host, endpoint.port), timeout=scaled(10))
    subscriber.sendall(
        f"GET {target} HTTP/1.1\r\nHost: {endpoint.host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += subscriber.recv(1)
    assert head.startswith(b"HTTP/1.1 101 ")
    # RFC 6455, section 4.2.2: the SHA-1 of this key and the protocol's GUID.
    assert b"Sec-WebSocket-Accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=" in head
    return subscriber


def receive(peer: socket.socket, size: int) -> bytes:
    """Receive so many bytes, or what comes before the end.

    ``MSG_WAITALL`` does not wait for all: a socket with a time limit does not block, as the kernel sees it.
    """
    data = b""
    while len(data) < size and (more := peer.recv(size - len(data))):
        data += more
    return data
