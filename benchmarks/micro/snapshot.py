"""What the current values of very many topics cost a node, when one session reads them, quickly or slowly.

``python -m benchmarks.micro.snapshot`` prints a table. A node over an in-memory grid holds the values already; a reader
in a process of its own subscribes to all of them, takes so many bytes a second and acknowledges what it has. Memory is
what the node holds at the most besides what it held before (``tracemalloc``); CPU and time are measured in a run of
their own, without that. Each figure is of a fresh process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import time
import tracemalloc
from typing import Any, Final

import uvloop

from benchmarks.storm.wire import Opcode, frame, read_frames, read_upgrade, upgrade_request
from gateway.adapters.memory import MemoryEventLog, MemoryGridServer
from gateway.bootstrap import Gateway
from gateway.core.topics.topics import topic_partition
from gateway.core.types import EventId, TopicPath, Version
from gateway.core.wire import codec
from gateway.core.wire.codec import SUBPROTOCOL
from gateway.core.wire.packets import SessionPacket, Update
from gateway.ports import TopicValue
from gateway.settings import AnonymousUsers, HostPort, Secret, Settings

TOPICS: Final = 100_000
VALUE_BYTES: Final = 100
"""Bytes of a value."""
SLOW: Final = 2_000_000
"""Bytes a second that a slow reader takes: all of it then takes some ten seconds."""
RECEIVE_BUFFER: Final = 64 * 1024
"""Bytes that the kernel may hold for the reader: what it holds, the node need not."""
READ_BYTES: Final = 64 * 1024
BATCH: Final = 1_000
"""Values that are put into the grid at once."""
KIB: Final = 1024
PATIENCE: Final = 300.0
"""Seconds until a run counts as failed."""


def read_all(port: int, topics: int, pace: int) -> None:
    """Be the reader: subscribe, and read until the value of every topic has come."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        connection.settimeout(PATIENCE)
        connection.connect(("127.0.0.1", port))
        connection.sendall(upgrade_request("127.0.0.1", port, "/v1/connect", SUBPROTOCOL))
        received = bytearray()
        while not read_upgrade(received):
            received += connection.recv(READ_BYTES)
        connection.sendall(frame(b'{"type":"hello","principal":"reader"}'))
        connection.sendall(frame(b'{"type":"subscribe","id":1,"request":1,"selector":"s/**"}'))
        began, taken = time.monotonic(), 0
        seen: set[str] = set()
        while len(seen) < topics:
            data = connection.recv(READ_BYTES)
            if not data:
                raise SystemExit(f"the node closed the connection after {len(seen)} topics")
            taken += len(data)
            received += data
            last = take(received, seen)
            if last:
                connection.sendall(frame(b'{"type":"ack","received":%d}' % last))
            if pace:
                time.sleep(max(0.0, taken / pace - (time.monotonic() - began)))
        connection.sendall(frame(b'{"type":"bye"}'))


def take(received: bytearray, seen: set[str]) -> int:
    """Take messages, and note their topics; returns the id of the last session packet, or 0."""
    last = 0
    for opcode, payload in read_frames(received):
        for packet in codec.decode_from_server(payload) if opcode == Opcode.TEXT else ():
            if isinstance(packet, SessionPacket):
                last = packet.id
                if isinstance(packet.body, Update):
                    seen.add(packet.body.topic)
    return last


async def serve(topics: int, pace: int, *, memory: bool) -> dict[str, float]:
    """Be the node, and measure it while the reader reads."""
    settings: dict[str, Any] = {
        "auth": AnonymousUsers(),
        "token_keys": (Secret("a-key-for-benchmarks-that-is-long-enough"),),
        "listen": HostPort("127.0.0.1", 0),
        "admin": HostPort("127.0.0.1", 0),
        "rate_packets": 0.0,
        "rate_bytes": 0.0,
    }
    gateway = Gateway(Settings(node="n1", **settings), log=MemoryEventLog(), memory=MemoryGridServer())
    await gateway.start()
    while gateway.node.readiness.reasons():  # noqa: ASYNC110 - once
        await asyncio.sleep(0.01)
    grid, replicas = gateway.node._context.grid, gateway.node.sessions.delivery.replicas  # noqa: SLF001 - in one process
    text = b'"%b"' % (b"x" * (VALUE_BYTES - 2))
    paths = [TopicPath(f"s/{number}") for number in range(topics)]
    for start in range(0, topics, BATCH):
        values = [
            TopicValue(path, Version(1), EventId(f"{topic_partition(path, 1)}-1-{number}"), text)
            for number, path in enumerate(paths[start : start + BATCH], start + 1)
        ]
        await grid.topics.restore(values)
    number = topic_partition(paths[0], 1)
    replicas.hold([number])
    await replicas.complete([number])
    if memory:
        tracemalloc.start()
    held = tracemalloc.get_traced_memory()[0] if memory else 0
    began, cpu = time.monotonic(), time.process_time()
    process = [sys.executable, "-m", __spec__.name, "--read", str(gateway.port)]
    reader = await asyncio.create_subprocess_exec(*process, "--topics", str(topics), "--pace", str(pace))
    if await asyncio.wait_for(reader.wait(), PATIENCE):
        raise SystemExit("the reader failed")
    figures = {"seconds": time.monotonic() - began, "cpu": time.process_time() - cpu}
    if memory:
        now, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        figures = {"peak": (peak - held) / KIB, "left": (now - held) / KIB}
    await gateway.close()
    return figures


def measured(topics: int, pace: int, *, memory: bool) -> dict[str, float]:
    """Have one figure measured in a process of its own."""
    command = [sys.executable, "-m", __spec__.name, "--serve", "--topics", str(topics), "--pace", str(pace)]
    if memory:
        command.append("--memory")
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=2 * PATIENCE)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    """Measure, and print; or be one of the processes of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--pace", type=int, default=SLOW, help="bytes a second that the slow reader takes")
    parser.add_argument("--read", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read_all(options.read, options.topics, options.pace)
        return
    if options.serve:
        figures = uvloop.run(serve(options.topics, options.pace, memory=options.memory))
        sys.stdout.write(json.dumps(figures))
        return
    sys.stdout.write(f"{options.topics:,} topics, values of {VALUE_BYTES} bytes\n")
    sys.stdout.write(f"{'reader':<10}{'seconds':>10}{'CPU s':>10}{'peak KiB':>12}{'left KiB':>12}\n")
    for name, pace in (("quick", 0), ("slow", options.pace)):
        timed = measured(options.topics, pace, memory=False)
        traced = measured(options.topics, pace, memory=True)
        row = f"{timed['seconds']:>10.2f}{timed['cpu']:>10.2f}{traced['peak']:>12,.0f}{traced['left']:>12,.0f}"
        sys.stdout.write(f"{name:<10}{row}\n")


if __name__ == "__main__":
    main()
