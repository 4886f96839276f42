"""What breaks between two looks at a connection between nodes is an error of the connection, on every loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest
import uvloop

from gateway.adapters.peers.greeting import write
from gateway.local.ports import LOOPBACK


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_writing_to_a_connection_that_was_closed_is_an_os_error(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def written() -> None:
        over = asyncio.Event()

        async def idle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.transport.abort()
            over.set()

        server = await asyncio.start_server(idle, LOOPBACK, 0)
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection(LOOPBACK, port)
        write(writer, b"x")
        writer.transport.abort()
        try:
            for _ in range(5):  # closing, and closed
                with pytest.raises(OSError, match="closed"):
                    write(writer, b"x")
                await asyncio.sleep(0)
            await over.wait()
        finally:
            server.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(written())
