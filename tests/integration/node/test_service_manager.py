"""A whole node under a service manager: it says when it is ready, how it is, that it lives, and that it stops."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

from tests.support.faults import eventually
from tests.support.times import scaled


async def test_a_node_tells_systemd_the_stages_of_its_life(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    address = str(tmp_path / "notify")
    listener.bind(address)
    listener.setblocking(False)
    told: list[str] = []
    loop = asyncio.get_running_loop()
    loop.add_reader(listener, lambda: told.extend(listener.recv(4096).decode().splitlines()))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    node = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "serve", "--dev", "--auth", "anonymous"),
        *("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"),
        env={**environment, "NOTIFY_SOCKET": address, "WATCHDOG_USEC": "300000"},
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        await eventually(lambda: "STATUS=0 sessions; ready" in told, "the node is ready and says so")
        assert told[0] == "READY=1"
        await eventually(lambda: told.count("WATCHDOG=1") >= 3, "the event loop says that it turns")
        told.clear()
        node.send_signal(signal.SIGHUP)
        await eventually(lambda: "READY=1" in told, "the node has read its files again")
        assert told.index("RELOADING=1") < told.index("READY=1")
        node.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(node.wait(), scaled(20)) == 0
        await eventually(lambda: "STOPPING=1" in told, "the node has said that it stops")
    finally:
        loop.remove_reader(listener)
        listener.close()
        if node.returncode is None:
            node.kill()
            await node.wait()
