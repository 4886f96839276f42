"""TLS at HAProxy: towards clients, towards nodes, and WebSockets over HTTP/2 (RFC 8441)."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator

import pytest
from websockets.exceptions import InvalidHandshake, InvalidMessage, InvalidStatus

from lb.errors import CommandRefused
from tests.support.blocking_websocket import BlockingWebSocket
from tests.support.certificates import Authority
from tests.support.haproxy import FAST, LOOPBACK, HAProxy, running_haproxy, wait_until
from tests.support.http2_websocket import CLOSE, Http2
from tests.support.lb_standins import StandIns, dial, echoes, greeting

pytestmark = pytest.mark.haproxy

Start = Callable[..., HAProxy]


@pytest.fixture
def cluster() -> Iterator[StandIns]:
    with StandIns() as stand_ins:
        yield stand_ins


@pytest.fixture
def proxy(cluster: StandIns, authority: Authority) -> Iterator[HAProxy]:
    certificate = str(authority.issue("haproxy"))
    frontend = {"certificate": certificate, "same_site": "None", "hsts": 31_536_000}
    with running_haproxy(cluster.nodes, {**FAST, "stickiness": "cookie", "frontend": frontend}) as haproxy:
        haproxy.wait_checked()
        yield haproxy


@pytest.fixture
def trust(authority: Authority) -> ssl.SSLContext:
    return authority.trust()


def serial(connection: BlockingWebSocket) -> str:
    seen = connection.tls.getpeercert()
    assert seen is not None
    return str(seen["serialNumber"])


# --- Towards clients --------------------------------------------------------------------------------------------------


def test_client_is_served_over_tls(proxy: HAProxy, trust: ssl.SSLContext) -> None:
    with dial(proxy, ssl=trust) as connection:
        seen = greeting(connection)
        cookie = connection.response.headers["Set-Cookie"]
        assert connection.response.headers["Strict-Transport-Security"] == "max-age=31536000"
        assert connection.tls.version() == "TLSv1.3"

    assert dict(seen["headers"])["X-Forwarded-Proto"] == "https"
    assert cookie == f"GATEWAY_NODE={seen['node']}; path=/; HttpOnly; Secure; SameSite=None"


def test_a_connection_is_read_and_written_by_one_thread(proxy: HAProxy, trust: ssl.SSLContext) -> None:
    """Of the tests themselves: two at a time lose what is written, now and then; see ``BlockingWebSocket``."""
    threads = threading.active_count()
    with dial(proxy, ssl=trust) as connection:
        assert threading.active_count() == threads
        assert greeting(connection)
        assert threading.active_count() == threads


def test_old_ciphers_are_refused(proxy: HAProxy, trust: ssl.SSLContext) -> None:
    trust.maximum_version = ssl.TLSVersion.TLSv1_2
    trust.set_ciphers("ECDHE-ECDSA-AES128-SHA")

    with pytest.raises(ssl.SSLError):
        dial(proxy, ssl=trust)


def test_clear_text_is_refused(proxy: HAProxy) -> None:
    with pytest.raises((InvalidMessage, InvalidHandshake, OSError)):
        BlockingWebSocket(f"ws://{LOOPBACK}:{proxy.port}/v1/connect")


def test_answers_of_haproxy_itself_bind_browsers_to_tls_too(proxy: HAProxy, trust: ssl.SSLContext) -> None:
    with pytest.raises(InvalidStatus) as caught:
        BlockingWebSocket(proxy.url.replace("/v1/connect", "/other"), ssl=trust)

    assert caught.value.response.status_code == 404
    assert caught.value.response.headers["Strict-Transport-Security"] == "max-age=31536000"


def test_a_renewed_certificate_is_served_without_a_reload(
    proxy: HAProxy, trust: ssl.SSLContext, authority: Authority
) -> None:
    name = proxy.topology.frontend.certificate
    assert name is not None
    with dial(proxy, ssl=trust) as early:
        greeting(early)
        pid, before = proxy.pid, serial(early)
        fresh = authority.issue("fresh").read_text()

        for bad in ("", "nonsense", fresh[:300], fresh.replace("PRIVATE KEY", "PUBLIC KEY")):
            with pytest.raises(CommandRefused):
                proxy.runtime.replace_certificate(name, bad)
        with dial(proxy, ssl=trust) as connection:
            assert serial(connection) == before

        proxy.runtime.replace_certificate(name, fresh)
        with dial(proxy, ssl=trust) as late:
            assert serial(late) != before
        assert echoes(early)
        assert proxy.pid == pid


def test_a_certificate_ends_no_command(proxy: HAProxy, authority: Authority) -> None:
    """An empty line would end the text of the certificate, and what follows would be another command."""
    fresh = authority.issue("fresh").read_text()
    with pytest.raises(CommandRefused):
        proxy.runtime.replace_certificate(f"{proxy.topology.frontend.certificate} <<\n\nshutdown", fresh)
    name = proxy.topology.frontend.certificate
    assert name is not None
    proxy.runtime.replace_certificate(name, f"\n\n{fresh}\n\ndisable server gateway/n1\n\n")

    assert proxy.node("n1").wanted == "ready"


# --- Towards nodes ----------------------------------------------------------------------------------------------------


def stand_in_tls(authority: Authority, name: str, identity: str, *, asks: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue(name, identity))
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.file)
    return context


def test_nodes_are_spoken_with_over_tls_if_they_can_prove_to_be_nodes(
    authority: Authority, trust: ssl.SSLContext
) -> None:
    own = authority.issue("haproxy")
    contexts = {
        "n1": stand_in_tls(authority, "n1", "n1.internal", asks=True),
        "n2": stand_in_tls(authority, "n2", "another.internal", asks=True),
        "n3": None,
    }
    with StandIns(tls=contexts) as cluster:
        nodes = [each.model_copy(update={"tls_name": f"{each.name}.internal"}) for each in cluster.nodes]
        settings = {
            **FAST,
            "frontend": {"certificate": str(own)},
            "nodes_tls": {"ca": str(authority.file), "certificate": str(own), "admin": True},
        }
        with running_haproxy(nodes, settings) as proxy:
            proxy.wait_checked()
            wait_until(lambda: not proxy.node("n3").alive, what="who speaks no TLS is found out")
            assert proxy.node("n1").alive
            assert not proxy.node("n2").alive, "the certificate is another node's"
            for query in ("", "?node=n1", "?node=n2", "?node=n3"):
                with dial(proxy, query, ssl=trust) as connection:
                    assert greeting(connection)["node"] == "n1"
                    assert echoes(connection)


# --- HTTP/2 -----------------------------------------------------------------------------------------------------------


def test_http_2_is_not_offered_where_it_is_not_wanted(authority: Authority, trust: ssl.SSLContext) -> None:
    frontend = {"certificate": str(authority.issue("haproxy")), "http2": False}
    trust.set_alpn_protocols(["h2", "http/1.1"])
    with StandIns(1) as cluster, running_haproxy(cluster.nodes, {**FAST, "frontend": frontend}) as proxy:
        proxy.wait_checked()
        with dial(proxy, ssl=trust) as connection:
            assert connection.tls.selected_alpn_protocol() == "http/1.1"


def test_websockets_are_streams_of_one_connection(proxy: HAProxy, trust: ssl.SSLContext) -> None:
    with Http2(LOOPBACK, proxy.port, trust) as connection:
        assert connection.offers_websockets
        sockets = [connection.connect(f"/v1/connect?node=n{1 + number % 3}") for number in range(6)]
        for number, each in enumerate(sockets):
            assert each.status == 200
            _, payload = each.receive()
            seen = json.loads(payload)
            assert seen["node"] == f"n{1 + number % 3}", "the hint is followed"
            headers = {name.lower(): value for name, value in seen["headers"]}
            assert (headers["x-forwarded-proto"], headers["upgrade"]) == ("https", "websocket")
            assert headers["x-forwarded-for"] == LOOPBACK
        for number, each in enumerate(sockets):
            each.send(f"message {number} " + "x" * 20_000)
        for number, each in enumerate(sockets):
            assert each.receive()[1].decode().startswith(f"message {number} ")
        # One ends, one is broken off; the others go on.
        sockets[0].close(1000)
        assert sockets[0].receive()[0] == CLOSE
        connection.reset(sockets[1].stream)
        for each in sockets[2:]:
            each.send("still there?")
            assert each.receive()[1] == b"still there?"


def test_a_draining_node_is_passed_over_within_the_stream(
    proxy: HAProxy, cluster: StandIns, trust: ssl.SSLContext
) -> None:
    cluster["n2"].upgrade = "refuse"
    with Http2(LOOPBACK, proxy.port, trust) as connection:
        moved = connection.connect("/v1/connect?node=n2")
        assert moved.status == 200
        assert json.loads(moved.receive()[1])["node"] in {"n1", "n3"}


def test_there_is_only_one_thing_to_ask_for_over_http_2_too(proxy: HAProxy, trust: ssl.SSLContext) -> None:
    with Http2(LOOPBACK, proxy.port, trust) as connection:
        for method, path in (("GET", "/"), ("GET", "/metrics"), ("POST", "/v1/connect")):
            asked = connection.request(method, path)
            assert asked.status == 404
            assert asked.headers is not None
            assert asked.headers["strict-transport-security"] == "max-age=31536000"
        assert connection.connect("/other").status == 404


def test_a_node_that_goes_down_ends_its_streams_and_no_others(
    proxy: HAProxy, cluster: StandIns, trust: ssl.SSLContext
) -> None:
    with Http2(LOOPBACK, proxy.port, trust) as connection:
        lost, kept = connection.connect("/v1/connect?node=n1"), connection.connect("/v1/connect?node=n2")
        lost.receive()
        kept.receive()
        cluster["n1"].alive = False
        while not lost.over:
            connection.step()
        kept.send("still there?")
        assert kept.receive()[1] == b"still there?"
        again = connection.connect("/v1/connect?node=n1")
        assert json.loads(again.receive()[1])["node"] in {"n2", "n3"}
