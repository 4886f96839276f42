"""Where HAProxy sends an upgrade: by hint, by cookie, past draining, hung and dead nodes."""

from __future__ import annotations

import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from lb.agent import AgentState
from lb.render import CONNECT_RETRIES
from lb.topology import Node
from tests.support.haproxy import FAST, LOOPBACK, HAProxy, free_ports, running_haproxy
from tests.support.lb_standins import SeparateStandIn, StandIns, dial, echoes, greeting, node_of
from tests.support.times import scaled

pytestmark = pytest.mark.haproxy

COOKIE = {**FAST, "stickiness": "cookie"}


@pytest.fixture
def cluster() -> Iterator[StandIns]:
    with StandIns() as stand_ins:
        yield stand_ins


@pytest.fixture
def proxy(cluster: StandIns) -> Iterator[HAProxy]:
    with running_haproxy(cluster.nodes) as haproxy:
        haproxy.wait_checked()
        yield haproxy


def test_hint_leads_to_the_named_node(proxy: HAProxy) -> None:
    for name in ("n1", "n2", "n3") * 3:
        assert node_of(proxy, f"?node={name}") == name


@pytest.mark.promise("P1")
def test_the_backup_is_next_when_the_node_is_down() -> None:
    with (
        SeparateStandIn("n9") as victim,
        StandIns(3) as cluster,
        running_haproxy([*cluster.nodes, victim.node]) as proxy,
    ):
        proxy.wait_checked()
        for backup in ("n1", "n2", "n3"):
            assert node_of(proxy, f"?node=n9&backup={backup}") == "n9", "the node itself is up"
            assert node_of(proxy, f"?backup={backup}") == backup, (
                "the node did not answer, so that its hint is left out"
            )
        victim.signal(signal.SIGKILL)
        proxy.wait_for("n9", lambda status: not status.alive, what="is found dead")
        for backup in ("n1", "n2", "n3") * 2:
            assert node_of(proxy, f"?node=n9&backup={backup}") == backup
        assert {node_of(proxy, "?node=n9&backup=n0") for _ in range(3)} <= {"n1", "n2", "n3"}


@pytest.mark.promise("P1")
def test_a_dead_node_that_nobody_has_noticed_costs_no_connection() -> None:
    """Within the same request another node is tried; whichever that is finds the copy."""
    ports = free_ports(3)
    absent = Node(name="n9", client_port=ports[0], admin_port=ports[1], agent_port=ports[2])
    with StandIns(2) as cluster, running_haproxy([*cluster.nodes, absent]) as proxy:
        assert node_of(proxy, "?node=n9&backup=n2") in {"n1", "n2"}


def test_a_name_that_is_unknown_leads_to_balancing(proxy: HAProxy) -> None:
    with ExitStack() as stack:
        found = {greeting(stack.enter_context(dial(proxy, "?node=n8&backup=n1")))["node"] for _ in range(3)}
    assert found == {"n1", "n2", "n3"}


def test_new_sessions_are_spread(proxy: HAProxy) -> None:
    with ExitStack() as stack:
        found = Counter(greeting(stack.enter_context(dial(proxy)))["node"] for _ in range(9))

    assert found == {"n1": 3, "n2": 3, "n3": 3}


@pytest.mark.parametrize(
    "hint", ["?node=n9", "?node=", "?node=gateway/n1", "?node=n1%20", "?other=n1", "?node=" + "x" * 500]
)
def test_unknown_or_absent_hint_falls_through(proxy: HAProxy, hint: str) -> None:
    with ExitStack() as stack:
        found = {greeting(stack.enter_context(dial(proxy, hint)))["node"] for _ in range(3)}

    assert found == {"n1", "n2", "n3"}


def test_draining_node_answering_503_is_left_unnoticed(cluster: StandIns, proxy: HAProxy) -> None:
    cluster["n2"].upgrade = "refuse"

    for _ in range(5):
        assert node_of(proxy, "?node=n2") in {"n1", "n3"}

    assert cluster["n2"].upgrades == 5


def test_two_of_three_draining_nodes_are_left(cluster: StandIns, proxy: HAProxy) -> None:
    """The unlucky case: the only node that accepts is the loaded one.

    A retry avoids only the node tried last, and least connections would go to and fro between the two empty ones. What
    helps is that a draining node says so to its agent too, and is then asked only by who names it.
    """
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(dial(proxy, "?node=n3"))
        for name in ("n1", "n2"):
            cluster[name].upgrade = "refuse"
            cluster[name].agent = AgentState.NOT_READY
            proxy.wait_for(name, lambda status: not status.ready, what="is not ready")

        assert node_of(proxy, "?node=n1") == "n3"


def test_client_is_told_when_all_nodes_refuse(cluster: StandIns, proxy: HAProxy) -> None:
    for each in cluster.all:
        each.upgrade = "refuse"

    with pytest.raises(InvalidStatus) as refused:
        dial(proxy)

    assert refused.value.response.status_code == 503


def test_node_that_accepts_and_hangs_up_is_left(cluster: StandIns, proxy: HAProxy) -> None:
    cluster["n1"].upgrade = "drop"

    assert node_of(proxy, "?node=n1") in {"n2", "n3"}
    assert cluster["n1"].upgrades == 1


def test_hung_node_is_left_after_the_server_timeout(cluster: StandIns, proxy: HAProxy) -> None:
    cluster["n1"].upgrade = "hang"
    start = time.monotonic()

    assert node_of(proxy, "?node=n1") in {"n2", "n3"}
    assert proxy.topology.timeouts.server <= time.monotonic() - start < 2 * proxy.topology.timeouts.server


def test_client_is_told_when_all_nodes_are_hung(cluster: StandIns) -> None:
    """Each try ends after the server timeout; with a longer ``server-fin`` the later ones would last that long."""
    limit = scaled(0.3)
    with running_haproxy(cluster.nodes, {**FAST, "timeouts": {"server": limit, "server_fin": limit}}) as proxy:
        for each in cluster.all:
            each.upgrade = "hang"
        start = time.monotonic()
        with pytest.raises(InvalidStatus) as refused:
            dial(proxy)

        assert time.monotonic() - start < (CONNECT_RETRIES + 2) * limit
        assert refused.value.response.status_code == 504
        assert refused.value.response.headers["Retry-After"] == "1"
        assert sum(each.upgrades for each in cluster.all) == CONNECT_RETRIES + 1


def test_absent_node_is_left() -> None:
    ports = free_ports(3)
    absent = Node(name="n9", client_port=ports[0], admin_port=ports[1], agent_port=ports[2])
    with StandIns(2) as cluster, running_haproxy([*cluster.nodes, absent]) as proxy:
        # At once, before any check has told that it is not there.
        assert node_of(proxy, "?node=n9") in {"n1", "n2"}

        proxy.wait_for("n9", lambda status: not status.alive, what="is found dead")
        assert node_of(proxy, "?node=n9") in {"n1", "n2"}


def test_killed_node() -> None:
    with (
        SeparateStandIn("n9") as victim,
        StandIns(2) as cluster,
        running_haproxy([*cluster.nodes, victim.node]) as proxy,
    ):
        proxy.wait_checked()
        with dial(proxy, "?node=n9") as affected, dial(proxy, "?node=n1") as other:
            assert greeting(affected)["node"] == "n9"
            assert greeting(other)["node"] == "n1"

            victim.signal(signal.SIGKILL)

            with pytest.raises(ConnectionClosed):
                affected.receive(5)
            for _ in range(20):
                assert node_of(proxy, "?node=n9") in {"n1", "n2"}
            assert echoes(other)


def test_stopped_node_is_left_and_its_connections_are_cut() -> None:
    """SIGSTOP: the kernel still accepts, nobody answers; DOWN frees its clients long before the tunnel timeout."""
    with (
        SeparateStandIn("n9") as victim,
        StandIns(2) as cluster,
        running_haproxy([*cluster.nodes, victim.node]) as proxy,
    ):
        proxy.wait_checked()
        with dial(proxy, "?node=n9") as affected, dial(proxy, "?node=n1") as other:
            greeting(affected)
            greeting(other)

            victim.signal(signal.SIGSTOP)
            assert node_of(proxy, "?node=n9") in {"n1", "n2"}
            with pytest.raises(ConnectionClosed):
                affected.receive(10)

            assert not proxy.node("n9").alive
            assert echoes(other)

            victim.signal(signal.SIGCONT)
            proxy.wait_for("n9", lambda status: status.alive, what="is back")
            assert node_of(proxy, "?node=n9") == "n9"


def test_node_that_is_not_ready_gets_no_new_sessions_but_returning_ones(cluster: StandIns, proxy: HAProxy) -> None:
    with dial(proxy, "?node=n1") as connected:
        greeting(connected)
        cluster["n1"].agent = AgentState.NOT_READY
        proxy.wait_for("n1", lambda status: not status.ready, what="is not ready")

        assert {node_of(proxy) for _ in range(9)} == {"n2", "n3"}
        assert node_of(proxy, "?node=n1") == "n1"
        assert echoes(connected)
        assert proxy.node("n1").alive

    cluster["n1"].agent = AgentState.READY
    proxy.wait_for("n1", lambda status: status.ready, what="is ready again")
    with ExitStack() as stack:
        assert "n1" in {greeting(stack.enter_context(dial(proxy)))["node"] for _ in range(3)}


@pytest.mark.promise("P10")
def test_an_unreachable_grid_keeps_clients_and_returning_sessions(cluster: StandIns, proxy: HAProxy) -> None:
    """P10: no node is ready; those connected stay, those who name their node reach it, new ones are told to wait."""
    with dial(proxy, "?node=n2") as connected:
        greeting(connected)
        for each in cluster.all:
            each.agent = AgentState.NOT_READY
        for each in cluster.all:
            proxy.wait_for(each.name, lambda status: not status.ready, what="is not ready")

        assert echoes(connected)
        for name in ("n1", "n2", "n3"):
            assert node_of(proxy, f"?node={name}") == name
        with pytest.raises(InvalidStatus) as refused:
            dial(proxy)
        assert refused.value.response.status_code == 503
        assert refused.value.response.headers["Retry-After"] == "1"
        assert echoes(connected)


def test_stickiness_off_ignores_the_hint(cluster: StandIns) -> None:
    with running_haproxy(cluster.nodes, {**FAST, "stickiness": "off"}) as proxy, ExitStack() as stack:
        found = Counter(greeting(stack.enter_context(dial(proxy, "?node=n1")))["node"] for _ in range(6))

    assert found == {"n1": 2, "n2": 2, "n3": 2}


def test_cookie_keeps_a_client_at_its_node_and_follows_it(cluster: StandIns) -> None:
    with running_haproxy(cluster.nodes, COOKIE) as proxy:
        proxy.wait_checked()
        with dial(proxy) as connection:
            node = greeting(connection)["node"]
            cookie = connection.response.headers["Set-Cookie"]
        assert cookie == f"GATEWAY_NODE={node}; path=/; HttpOnly; SameSite=Strict"
        cookies = {"Cookie": f"other=1; GATEWAY_NODE={node}"}

        for _ in range(5):
            with dial(proxy, additional_headers=cookies) as connection:
                seen = greeting(connection)
                assert seen["node"] == node
                # The node does not see it, and it is not sent again.
                assert ["Cookie", "other=1"] in seen["headers"]
                assert "Set-Cookie" not in connection.response.headers

        cluster[node].upgrade = "refuse"
        with dial(proxy, additional_headers=cookies) as connection:
            moved = greeting(connection)["node"]
            assert moved != node
            assert connection.response.headers["Set-Cookie"].startswith(f"GATEWAY_NODE={moved};")


def test_hint_goes_before_the_cookie(cluster: StandIns) -> None:
    """The hint is from the newest welcome; a cookie may be shared with another tab's session, and is left alone."""
    with running_haproxy(cluster.nodes, COOKIE) as proxy:
        with dial(proxy, "?node=n3") as connection:
            assert greeting(connection)["node"] == "n3"
            assert "Set-Cookie" not in connection.response.headers
        for name in ("n1", "n2", "n3"):
            assert node_of(proxy, f"?node={name}", additional_headers={"Cookie": "GATEWAY_NODE=n2"}) == name


def test_kernel_accepts_nobody(cluster: StandIns) -> None:
    """A listener that never accepts, its queue full: the connect timeout leads on."""
    with ExitStack() as stack:
        deaf = stack.enter_context(socket.socket())
        deaf.bind((LOOPBACK, 0))
        deaf.listen(0)
        for _ in range(2):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        port = deaf.getsockname()[1]
        spare = free_ports(1)[0]
        node = Node(name="n9", client_port=port, admin_port=cluster["n1"].node.admin_port, agent_port=spare)
        # Its admin port answers for it: only the client port is deaf.
        proxy = stack.enter_context(running_haproxy([*cluster.nodes[1:], node]))

        assert node_of(proxy, "?node=n9") in {"n2", "n3"}
