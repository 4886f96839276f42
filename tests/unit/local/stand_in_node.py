"""Takes the place of a gateway node where a test is about processes and not about sessions.

Speaks just enough for HAProxy and the stack: health, readiness, metrics, the agent check, and a WebSocket that says
which node it is. Like a node it ends with 0 on SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys

from aiohttp import web


async def _fine(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _metrics(_request: web.Request) -> web.Response:
    text = '# TYPE gateway_sessions gauge\ngateway_sessions{state="connected"} 3\n# TYPE up gauge\nup 1\n'
    return web.Response(text=text)


async def _agent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"up 100%\n")
    writer.close()


async def _serve(arguments: argparse.Namespace) -> None:
    async def connect(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str(arguments.node)
        async for _ in socket:
            pass
        return socket

    runners = []
    for address, routes in (
        (arguments.listen, [web.get("/v1/connect", connect)]),
        (arguments.admin, [web.get("/healthz", _fine), web.get("/readyz", _fine), web.get("/metrics", _metrics)]),
    ):
        application = web.Application()
        application.add_routes(routes)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        host, _, port = address.rpartition(":")
        await web.TCPSite(runner, host, int(port)).start()
        runners.append(runner)
    host, _, port = arguments.agent.rpartition(":")
    agent = await asyncio.start_server(_agent, host, int(port))
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    sys.stderr.write(f"serving {arguments.node} {os.environ.get('GATEWAY_WINDOW_DEFAULT')}\n")
    await stopping.wait()
    agent.close()
    for runner in runners:
        await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("node", "listen", "admin", "agent", "grid", "auth"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    if os.environ.get("GATEWAY_LOG_LEVEL") == "fail":
        sys.exit("configuration: log_level = fail: give debug, info, warning or error")
    asyncio.run(_serve(arguments))


if __name__ == "__main__":
    main()
