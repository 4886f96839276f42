"""Many connections to a port, without a token, that do one bad thing, and come again when they are closed.

``python -m tests.support.unauthenticated_clients PORT COUNT SECONDS KIND`` tells how many connections it has opened, at
its end. It is a process of its own, so that it takes no time of a node under test, and ends by itself.
"""

from __future__ import annotations

import asyncio
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

LOOPBACK: Final = "127.0.0.1"

SAYINGS: Final = {
    "idle": b"",
    "half": b"GET /heal",
    "checks": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "kept": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "unread": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50,
    "pages": b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50,
}
"""What each kind says when it is connected. None of them reads."""

AGAIN_SECONDS: Final = 1.0
"""How long an unauthenticated client that was closed waits before it comes again."""

OPENED_PER_SECOND: Final = 4000
"""Most connections that are opened in a second."""

TURNS_PER_SECOND: Final = 100
"""In how many portions they are opened."""


def run(port: int, count: int, seconds: float, kind: str) -> int:
    """Be the unauthenticated clients, for so long; returns how many connections were opened."""
    said, opened, end = SAYINGS[kind], 0, time.monotonic() + seconds
    poll, here = select.epoll(), dict[int, socket.socket]()
    due = deque([0.0] * count)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while (now := time.monotonic()) < end:
        for _ in range(OPENED_PER_SECOND // TURNS_PER_SECOND):
            if not due or due[0] > now:
                break
            due.popleft()
            opened += 1
            peer = socket.socket()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.setblocking(False)
            peer.connect_ex((LOOPBACK, port))
            here[peer.fileno()] = peer
            poll.register(peer, select.EPOLLOUT)
        for descriptor, event in poll.poll(1 / TURNS_PER_SECOND):
            if event == select.EPOLLOUT:
                with suppress(OSError):
                    here[descriptor].send(said)
                # What comes is not read, so only its end may be told of.
                poll.modify(descriptor, select.EPOLLRDHUP)
            else:
                poll.unregister(descriptor)
                here.pop(descriptor).close()
                due.append(now + AGAIN_SECONDS)
    return opened


@asynccontextmanager
async def unauthenticated_clients(
    port: int, count: int, seconds: float, kind: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Have unauthenticated clients at a port of this machine until the end of the block, or for so many seconds."""
    command = (sys.executable, "-m", "tests.support.unauthenticated_clients", str(port), str(count), str(seconds), kind)
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


if __name__ == "__main__":
    sys.stdout.write(f"{run(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])}\n")
