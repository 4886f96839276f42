"""Socket.IO's connection state recovery works where it can, and the benchmark does not break what it measures.

It saves a session when its socket closes. So it recovers one whose socket was cut, on any node, and none of a node that
was killed: the difference to the gateway that the failover case shows.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import websocket

from benchmarks.processes import wait_until
from benchmarks.systems.base import StartOptions
from benchmarks.systems.socketio import ACKNOWLEDGE, RECEIVED, SocketIo
from benchmarks.systems.socketio_nodes import Cluster, Node
from tests.benchmarks.peers import CORES, prepared

DEADLINE = 10.0

Resume = dict[str, str]


class Client:
    """A Socket.IO client, by hand; resumes if it is given the last one's ``pid`` and the last ``offset`` it saw."""

    def __init__(self, node: Node, resume: Resume | None = None) -> None:
        endpoint = node.endpoint
        self._socket = websocket.create_connection(
            f"ws://{endpoint.host}:{endpoint.port}{endpoint.subscribe_target}", timeout=DEADLINE
        )
        assert self._receive().startswith("0")
        self._socket.send("40" + (json.dumps(resume) if resume else ""))
        # What was missed comes before the answer.
        self.missed: list[Any] = []
        while (text := self._receive()).startswith("42"):
            self.missed.append(json.loads(text[2:]))
        assert text.startswith("40")
        self.pid: str = json.loads(text[2:])["pid"]
        self.recovered = resume is not None and self.pid == resume["pid"]

    def _receive(self) -> str:
        while (text := self._socket.recv()) == "2":
            self._socket.send("3")
        assert isinstance(text, str)
        return text

    def ask(self, *event: str) -> None:
        """Emit, and wait for the acknowledgement."""
        self._socket.send(f"420{json.dumps(event)}")
        assert self._receive().startswith("430")

    def update(self) -> list[Any]:
        """The next update: its name, value and offset."""
        text = self._receive()
        assert text.startswith("42")
        update: list[Any] = json.loads(text[2:])
        return update

    def cut(self) -> None:
        """Lose the connection without a word; harmless if it is lost."""
        self._socket.shutdown()  # type: ignore[no-untyped-call]  # nor is it in its source


Enter = Callable[..., Client]


@pytest.fixture
def enter() -> Iterator[Enter]:
    """Opens clients and closes them all."""
    with contextlib.ExitStack() as stack:

        def open_client(node: Node, resume: Resume | None = None) -> Client:
            client = Client(node, resume)
            stack.callback(client.cut)
            return client

        yield open_client


@pytest.fixture
def system(tmp_path: Path) -> SocketIo:
    """The peer, if it is installed."""
    return prepared(SocketIo(), tmp_path)


@pytest.fixture
def cluster(system: SocketIo) -> Iterator[Cluster]:
    """Two nodes with one Redis."""
    with system.cluster(CORES, StartOptions(), size=2) as running:
        yield running


def subscribed(enter: Enter, node: Node, topic: str, publisher: Client) -> tuple[Client, Resume]:
    """A client that has seen one update, and what it needs to resume."""
    client = enter(node)
    client.ask("subscribe", topic)
    publisher.ask("publish", topic, "first")
    name, value, offset = client.update()
    assert (name, value) == ("update", "first")
    return client, {"pid": client.pid, "offset": offset}


def test_a_cut_session_is_recovered_with_what_it_missed(cluster: Cluster, enter: Enter) -> None:
    publisher = enter(cluster.nodes[1])
    client, resume = subscribed(enter, cluster.nodes[0], "prices", publisher)
    client.cut()
    publisher.ask("publish", "prices", "missed")

    found: list[Client] = []

    # The node saves the session when it notices the cut; before that nobody can recover it.
    def is_recovered() -> bool:
        found.append(enter(cluster.nodes[0], resume))
        return found[-1].recovered

    wait_until(is_recovered, "the session is recovered", within=DEADLINE)
    assert [each[1] for each in found[-1].missed] == ["missed"]


def test_no_session_of_a_killed_node_is_recovered(cluster: Cluster, enter: Enter) -> None:
    publisher = enter(cluster.nodes[1])
    sessions = [subscribed(enter, cluster.nodes[0], f"prices{each}", publisher) for each in range(10)]
    cluster.nodes[0].process.signal(signal.SIGKILL)
    cluster.nodes[0].process.process.wait()

    back = [enter(cluster.nodes[1], resume) for _, resume in sessions]

    assert [each.recovered for each in back] == [False] * 10
    assert [each.missed for each in back] == [[]] * 10


def test_a_publish_may_be_acknowledged_before_it_is_stored(system: SocketIo, enter: Enter) -> None:
    with system.cluster(CORES, StartOptions(extra={ACKNOWLEDGE: RECEIVED}), size=1) as cluster:
        publisher = enter(cluster.nodes[0])
        client, _ = subscribed(enter, cluster.nodes[0], "prices", publisher)
        publisher.ask("publish", "prices", "second")
        assert client.update()[1] == "second"
