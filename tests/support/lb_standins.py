"""Stand-ins for gateway nodes, to see what HAProxy does with healthy, draining, hung and dying ones.

A stand-in has the three ports of a node (client, admin, agent). ``StandIns`` runs some in a thread, where a test can
change their behaviour at any moment; ``SeparateStandIn`` runs one in a process, which a test can kill or stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from aiohttp import WSMsgType, web

from lb.agent import AgentServer, AgentState
from lb.topology import Node
from tests.support.blocking_websocket import BlockingWebSocket
from tests.support.haproxy import LOOPBACK, START_DEADLINE, HAProxy

SHUTDOWN_SECONDS = 0.05
"""For requests that are being answered. Not 0, which aiohttp takes for "as long as it needs", and a connection that was
accepted in just that moment may need for ever."""

ACCEPTING_TURNS = 5
"""Of the event loop: sockets are accepted, tasks begin, make transports, tell their protocols, and are over."""

_Result = TypeVar("_Result")


class StandIn:
    """One stand-in. Its first message on a connection is a JSON object with its name and what it saw of the request.

    Attributes:
        name: its name.
        upgrade: what it does with upgrades: ``accept``, ``refuse`` (503), ``drop`` (hang up) or ``hang``.
        alive: False lets its health check hang.
        agent: what its agent says.
        upgrades: how many upgrade requests have come, whatever it did with them.
        agent_questions: how often its agent was asked.
    """

    def __init__(self, name: str, tls: ssl.SSLContext | None = None) -> None:
        self.name = name
        self._tls = tls
        self.upgrade = "accept"
        self.alive = True
        self.agent = AgentState.READY
        self.upgrades = 0
        self._runners: list[web.AppRunner] = []
        self.agent_questions = 0
        self._agent = AgentServer(LOOPBACK, 0, self._answer)
        self._ports: list[int] = []
        self._stopping = asyncio.Event()

    @property
    def node(self) -> Node:
        """As the topology describes it."""
        client, admin = self._ports
        return Node(name=self.name, client_port=client, admin_port=admin, agent_port=self._agent.port)

    async def start(self) -> None:
        for path, handler in (("/v1/connect", self._connect), ("/healthz", self._health)):
            app = web.Application()
            app.router.add_get(path, handler)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
            await runner.setup()
            self._runners.append(runner)
            await web.TCPSite(runner, LOOPBACK, 0, ssl_context=self._tls).start()
            self._ports.append(runner.addresses[0][1])
        await self._agent.start()

    async def stop(self) -> None:
        self._stopping.set()
        # Who dialled before has to become a connection first: when a server closes, asyncio leaves the socket of one
        # that it has accepted and not yet attached to the server to the collector of garbage.
        for _ in range(ACCEPTING_TURNS):
            await asyncio.sleep(0)
        await self._agent.close()
        for runner in self._runners:
            await runner.cleanup()

    def _answer(self) -> AgentState:
        self.agent_questions += 1
        return self.agent

    async def _health(self, request: web.Request) -> web.Response:
        if not self.alive:
            await self._stopping.wait()
        return web.Response(text="alive\n")

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        self.upgrades += 1
        match self.upgrade:
            case "refuse":
                return web.Response(status=503, text="draining\n")
            case "drop":
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            case "hang":
                await self._stopping.wait()
                return web.Response()
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        await socket.send_json({"node": self.name, "headers": [*request.headers.items()], "query": dict(request.query)})
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await socket.send_str(message.data)
        return socket


class StandIns:
    """Some stand-ins, named n1, n2 and so on, in one thread with an event loop; a context manager.

    Args:
        count: how many.
        tls: by their names, how they speak TLS.
    """

    def __init__(self, count: int = 3, *, tls: Mapping[str, ssl.SSLContext | None] | None = None) -> None:
        names = [f"n{number}" for number in range(1, count + 1)]
        self.all = tuple(StandIn(name, tls.get(name) if tls else None) for name in names)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """As the topology describes them."""
        return tuple(each.node for each in self.all)

    def __getitem__(self, name: str) -> StandIn:
        return next(each for each in self.all if each.name == name)

    def __enter__(self) -> Self:
        self._thread.start()
        for each in self.all:
            self._run(each.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self.all:
            self._run(each.stop())
        self._run(self._cancel_rest())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_DEADLINE)
        self._loop.close()

    async def _cancel_rest(self) -> None:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def _run(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(START_DEADLINE)


class SeparateStandIn:
    """One stand-in in a process of its own; a context manager."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.lb_standins", self._name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        ports = json.loads(self._process.stdout.readline())
        self.node = Node(name=self._name, **ports)
        return self

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal: SIGKILL, SIGSTOP, SIGCONT."""
        self._process.send_signal(number)
        if number is signal.SIGKILL:
            self._process.wait(START_DEADLINE)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(START_DEADLINE)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def dial(proxy: HAProxy, query: str = "", **options: Any) -> BlockingWebSocket:
    """Connect through HAProxy; *options* are those of ``BlockingWebSocket``."""
    return BlockingWebSocket(proxy.url + query, **options)


def greeting(connection: BlockingWebSocket) -> dict[str, Any]:
    """Receive a stand-in's first message."""
    message = json.loads(connection.receive())
    assert isinstance(message, dict)
    return message


def node_of(proxy: HAProxy, query: str = "", **options: Any) -> str:
    """Connect, see who answers, and close."""
    with dial(proxy, query, **options) as connection:
        return str(greeting(connection)["node"])


def echoes(connection: BlockingWebSocket) -> bool:
    """Tell whether a connection still works both ways."""
    connection.send("still there?")
    return connection.receive() == "still there?"


async def _serve(name: str) -> None:
    stand_in = StandIn(name)
    await stand_in.start()
    ports = stand_in.node.model_dump(include={"client_port", "admin_port", "agent_port"})
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    # Ends with the test that started it, however that ends: then standard input does too.
    await asyncio.to_thread(sys.stdin.read)
    await stand_in.stop()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(sys.argv[1]))
