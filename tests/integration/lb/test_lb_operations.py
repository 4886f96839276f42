"""What operators do and see: drain, maintenance, DOWN, reload, restart, logs, metrics."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from lb.agent import AgentState
from lb.errors import CommandRefused, NodeUnknown, SocketUnreachable
from lb.runtime import RuntimeSocket, Takes, Wanted
from tests.support.haproxy import FAST, LOOPBACK, HAProxy, free_ports, running_haproxy, wait_until
from tests.support.lb_standins import StandIns, dial, echoes, greeting, node_of
from tests.support.times import scaled

pytestmark = pytest.mark.haproxy

AGENT_POLLS = 5
"""So many answers of an agent pass before a test believes that it will not undo what the operator did."""


@pytest.fixture
def cluster() -> Iterator[StandIns]:
    with StandIns() as stand_ins:
        yield stand_ins


@pytest.fixture
def proxy(cluster: StandIns) -> Iterator[HAProxy]:
    with running_haproxy(cluster.nodes) as haproxy:
        haproxy.wait_checked()
        yield haproxy


def agent_asked_again(cluster: StandIns, name: str) -> None:
    """Wait until HAProxy has asked a node's agent several times more."""
    asked = cluster[name].agent_questions
    wait_until(lambda: cluster[name].agent_questions >= asked + AGENT_POLLS, what=f"agent of {name} asked")


def lb(proxy: HAProxy, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lb", *arguments, "--socket", proxy.topology.runtime_socket],
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(30),
    )


def test_show(cluster: StandIns, proxy: HAProxy) -> None:
    with dial(proxy, "?node=n2") as connection:
        greeting(connection)
        nodes = {status.node: status for status in proxy.runtime.nodes()}

        assert list(nodes) == ["n1", "n2", "n3"]
        assert [status.sessions for status in nodes.values()] == [0, 1, 0]
        assert nodes["n2"].address == f"{LOOPBACK}:{cluster['n2'].node.client_port}"
        assert nodes["n2"].alive
        assert nodes["n2"].ready
        assert nodes["n2"].wanted is Wanted.READY
        assert nodes["n2"].takes is Takes.ALL
        assert (nodes["n2"].check.status, nodes["n2"].agent.status) == ("L7OK", "L7OK")


def test_drained_by_the_operator_stays_drained_though_the_agent_is_ready(cluster: StandIns, proxy: HAProxy) -> None:
    with dial(proxy, "?node=n1") as connected:
        greeting(connected)
        proxy.runtime.set_wanted("n1", Wanted.DRAIN)
        agent_asked_again(cluster, "n1")

        assert proxy.node("n1").wanted is Wanted.DRAIN
        assert proxy.node("n1").ready
        assert proxy.node("n1").takes is Takes.RETURNING
        assert {node_of(proxy) for _ in range(6)} == {"n2", "n3"}
        assert node_of(proxy, "?node=n1") == "n1"
        assert echoes(connected)

    proxy.runtime.set_wanted("n1", Wanted.READY)
    assert proxy.node("n1").takes is Takes.ALL


def test_maintenance_cuts_and_stays_though_the_agent_is_ready(cluster: StandIns, proxy: HAProxy) -> None:
    with dial(proxy, "?node=n1") as affected, dial(proxy, "?node=n2") as other:
        greeting(affected)
        greeting(other)
        proxy.runtime.set_wanted("n1", Wanted.MAINT)

        with pytest.raises(ConnectionClosed):
            affected.receive(5)
        agent_asked_again(cluster, "n1")
        assert proxy.node("n1").wanted is Wanted.MAINT
        assert proxy.node("n1").takes is Takes.NONE
        assert node_of(proxy, "?node=n1") in {"n2", "n3"}
        assert echoes(other)

    proxy.runtime.set_wanted("n1", Wanted.READY)
    proxy.wait_for("n1", lambda status: status.takes is Takes.ALL, what="serves again")
    assert node_of(proxy, "?node=n1") == "n1"


def test_operator_and_agent_do_not_undo_each_other(cluster: StandIns, proxy: HAProxy) -> None:
    cluster["n1"].agent = AgentState.NOT_READY
    proxy.wait_for("n1", lambda status: not status.ready, what="is not ready")
    proxy.runtime.set_wanted("n1", Wanted.DRAIN)
    proxy.runtime.set_wanted("n1", Wanted.READY)

    agent_asked_again(cluster, "n1")
    assert proxy.node("n1").takes is Takes.RETURNING

    proxy.runtime.set_wanted("n1", Wanted.MAINT)
    cluster["n1"].agent = AgentState.READY
    agent_asked_again(cluster, "n1")
    assert proxy.node("n1").takes is Takes.NONE

    proxy.runtime.set_wanted("n1", Wanted.READY)
    proxy.wait_for("n1", lambda status: status.takes is Takes.ALL, what="serves again")


def test_cut(proxy: HAProxy) -> None:
    with dial(proxy, "?node=n1") as affected, dial(proxy, "?node=n2") as other:
        greeting(affected)
        greeting(other)
        proxy.runtime.cut("n1")

        with pytest.raises(ConnectionClosed):
            affected.receive(5)
        assert echoes(other)
        assert proxy.node("n1").takes is Takes.ALL


def test_errors_of_the_runtime_socket(proxy: HAProxy, tmp_path: Path) -> None:
    with pytest.raises(NodeUnknown, match=r"there is no node 'n9' at .*; there are: n1, n2, n3"):
        proxy.runtime.set_wanted("n9", Wanted.DRAIN)
    with pytest.raises(NodeUnknown, match="cannot be the name"):
        proxy.runtime.set_wanted("n1 state maint;set server gateway/n2", Wanted.DRAIN)
    with pytest.raises(NodeUnknown):
        proxy.runtime.cut("n9")
    with pytest.raises(CommandRefused, match=r"Can't find backend|No such"):
        RuntimeSocket(proxy.runtime.address, backend="nobody").nodes()
    with pytest.raises(SocketUnreachable, match="is HAProxy running"):
        RuntimeSocket(str(tmp_path / "none")).nodes()
    assert all(status.takes is Takes.ALL for status in proxy.runtime.nodes())

    proxy.kill()
    with pytest.raises(SocketUnreachable, match="HAProxy has stopped"):
        proxy.runtime.nodes()


def test_socket_without_the_admin_level_may_look_only(cluster: StandIns) -> None:
    port = free_ports(1)[0]
    extra = f"\nglobal\n    stats socket ipv4@{LOOPBACK}:{port} level user\n"
    with running_haproxy(cluster.nodes, extra=extra):
        by_tcp = RuntimeSocket(f"{LOOPBACK}:{port}")

        with pytest.raises(CommandRefused):
            by_tcp.set_wanted("n1", Wanted.DRAIN)


def test_down_cuts_connections(cluster: StandIns, proxy: HAProxy) -> None:
    """A node whose event loop hangs: its sockets are open, its health check is not answered."""
    with dial(proxy, "?node=n1") as affected, dial(proxy, "?node=n2") as other:
        greeting(affected)
        greeting(other)
        cluster["n1"].alive = False

        with pytest.raises(ConnectionClosed):
            affected.receive(5)
        assert not proxy.node("n1").alive
        assert proxy.node("n1").takes is Takes.NONE
        assert echoes(other)

    cluster["n1"].alive = True
    proxy.wait_for("n1", lambda status: status.alive, what="is alive again")


def test_reload_refuses_nobody_and_keeps_connections(cluster: StandIns, proxy: HAProxy) -> None:
    failures: list[Exception] = []
    served = 0
    done = threading.Event()

    def keep_connecting() -> None:
        nonlocal served
        while not done.is_set():
            try:
                node_of(proxy, "?node=n3")
                served += 1
            except Exception as error:  # noqa: BLE001 - any failure at all is what this test looks for
                failures.append(error)

    with dial(proxy, "?node=n1") as connected:
        greeting(connected)
        first = proxy.pid
        thread = threading.Thread(target=keep_connecting)
        thread.start()
        try:
            for _ in range(3):
                before = served
                proxy.reload()
                wait_until(lambda before=before: served > before + 20, what="connections after a reload")  # type: ignore[misc]
        finally:
            done.set()
            thread.join()

        assert failures == []
        assert proxy.pid != first
        assert echoes(connected)


def test_reload_cuts_old_connections_after_hard_stop(cluster: StandIns) -> None:
    # Long enough that the new process runs before the old one ends.
    settings = {**FAST, "timeouts": {"hard_stop_after": scaled(1.5)}}
    with running_haproxy(cluster.nodes, settings) as proxy, dial(proxy, "?node=n1") as connected:
        greeting(connected)
        proxy.reload()

        assert echoes(connected)
        with pytest.raises(ConnectionClosed):
            connected.receive(5)
        assert node_of(proxy, "?node=n1") == "n1"


def test_reload_with_another_set_of_nodes(cluster: StandIns) -> None:
    with running_haproxy(cluster.nodes[:1]) as proxy, dial(proxy) as connected:
        assert greeting(connected)["node"] == "n1"
        proxy.reload(cluster.nodes[1:])

        assert [status.node for status in proxy.runtime.nodes()] == ["n2", "n3"]
        assert node_of(proxy, "?node=n3") == "n3"
        assert echoes(connected)


def test_killed_and_started_again_the_hint_still_leads(proxy: HAProxy) -> None:
    with dial(proxy, "?node=n2") as connected:
        greeting(connected)
        proxy.kill()
        with pytest.raises(ConnectionClosed):
            connected.receive(5)

    proxy.start()
    assert node_of(proxy, "?node=n2") == "n2"


SECRET = "do-not-write-this-down"


def test_log_shows_the_path_and_nothing_that_could_be_secret(proxy: HAProxy) -> None:
    headers = {"Authorization": f"Bearer {SECRET}", "Cookie": f"token={SECRET}", "Referer": f"http://x/?{SECRET}"}
    with dial(proxy, f"?node=n1&token={SECRET}", additional_headers=headers) as connection:
        greeting(connection)
        connection.send(json.dumps({"type": "resume", "token": SECRET}))
        connection.receive(5)
    for request in (
        f"GET /elsewhere?token={SECRET} HTTP/1.1\r\nHost: x\r\n\r\n",
        f"GET http://host/v1/connect?token={SECRET} HTTP/1.1\r\nHost: host\r\n\r\n",
        f"POST /v1/connect?token={SECRET} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        f"GET /bad request?token={SECRET} HTTP/1.1\r\nHost: x\r\n\r\n",
        f"{SECRET}\r\n\r\n",
    ):
        raw(proxy, request)

    wait_until(lambda: proxy.log().count(" clients ") >= 6, what="all requests in the log")
    log = proxy.log()
    assert SECRET not in log
    assert "node=" not in log
    assert re.search(r'clients gateway/n1 \S+ 101 \d+ - - ---- \S+ \S+ "GET /v1/connect HTTP/1.1"$', log, re.MULTILINE)
    assert "404" in log
    assert '"GET /elsewhere HTTP/1.1"' in log


def raw(proxy: HAProxy, request: str) -> str:
    """Send bytes and read the answer to its end."""
    with socket.create_connection((LOOPBACK, proxy.port), timeout=scaled(5)) as connection:
        connection.sendall(request.encode())
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := connection.recv(65_536):
            answer += chunk
    return answer.decode()


@pytest.mark.parametrize(
    "request_line",
    [
        "GET /",
        "GET /healthz",
        "GET /metrics",
        "GET /stats",
        "GET /v1/connect/",
        "GET /v1/connect/x",
        "GET /V1/CONNECT",
        "GET //v1/connect",
        "GET /v1/%63onnect",
        "GET /v1/../v1/connect",
        "POST /v1/connect",
        "HEAD /v1/connect",
        "OPTIONS /v1/connect",
        "CONNECT /v1/connect",
        "DELETE /v1/connect",
    ],
)
def test_nothing_else_is_served(cluster: StandIns, proxy: HAProxy, request_line: str) -> None:
    answer = raw(proxy, f"{request_line} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    assert answer.startswith(("HTTP/1.1 404 ", "HTTP/1.1 400 "))
    assert sum(each.upgrades for each in cluster.all) == 0


def test_client_address_cannot_be_forged(proxy: HAProxy) -> None:
    forged = [
        ("X-Forwarded-For", "1.2.3.4"),
        ("X-Forwarded-For", "5.6.7.8"),
        ("x-forwarded-for", "9.9.9.9"),
        ("Forwarded", "for=1.2.3.4"),
        ("X-Real-IP", "1.2.3.4"),
        ("X-Forwarded-Host", "evil.example"),
        ("X-Forwarded-Proto", "https"),
    ]
    with dial(proxy, additional_headers=forged) as connection:
        seen = [(name.lower(), value) for name, value in greeting(connection)["headers"]]

    about_client = [(name, value) for name, value in seen if "forwarded" in name or "real-ip" in name]
    assert about_client == [("x-forwarded-for", LOOPBACK), ("x-forwarded-proto", "http")]


def test_client_that_never_ends_its_headers_is_dropped(cluster: StandIns) -> None:
    settings = {**FAST, "timeouts": {"http_request": scaled(0.2)}}
    with (
        running_haproxy(cluster.nodes, settings) as proxy,
        socket.create_connection((LOOPBACK, proxy.port), timeout=scaled(5)) as connection,
    ):
        connection.sendall(b"GET /v1/connect HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        answer = connection.recv(65_536)

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert sum(each.upgrades for each in cluster.all) == 0


def test_address_comes_from_the_proxy_before(cluster: StandIns) -> None:
    settings = {**FAST, "frontend": {"accept_proxy": True}}
    with (
        running_haproxy(cluster.nodes, settings) as proxy,
        socket.create_connection((LOOPBACK, proxy.port), timeout=scaled(5)) as connection,
    ):
        connection.sendall(b"PROXY TCP4 192.0.2.7 192.0.2.1 1234 80\r\n")
        with dial(proxy, sock=connection) as client:
            headers = dict(greeting(client)["headers"])

    assert headers["X-Forwarded-For"] == "192.0.2.7"


def test_prometheus_and_page(proxy: HAProxy) -> None:
    base = f"http://{LOOPBACK}:{proxy.statistics_port}"
    metrics = urllib.request.urlopen(f"{base}/metrics", timeout=scaled(5)).read().decode()
    page = urllib.request.urlopen(f"{base}/stats", timeout=scaled(5)).read().decode()

    assert 'haproxy_server_status{proxy="gateway",server="n1",state="UP"} 1' in metrics
    assert "n1" in page
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{base}/v1/connect", timeout=scaled(5))


def test_command_line_steers(cluster: StandIns, proxy: HAProxy) -> None:
    shown = lb(proxy, "show")
    assert shown.returncode == 0, shown.stderr
    assert [line.split()[0] for line in shown.stdout.splitlines()] == ["NODE", "n1", "n2", "n3"]

    drained = lb(proxy, "drain", "n1")
    assert (drained.returncode, drained.stdout) == (0, "n1: drained; 0 connections now, takes returning\n")

    maint = lb(proxy, "maint", "n1", "--json")
    assert json.loads(maint.stdout)["wanted"] == "maint"

    ready = lb(proxy, "ready", "n1")
    assert ready.returncode == 0

    unknown = lb(proxy, "drain", "n9")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr.startswith("lb: there is no node 'n9'")
