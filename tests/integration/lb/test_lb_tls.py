"""The TLS variant: the client side is encrypted, nodes are told so, the cookie is sent over TLS only."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import InvalidHandshake, InvalidMessage
from websockets.sync.client import connect

from tests.support.haproxy import FAST, LOOPBACK, HAProxy, running_haproxy
from tests.support.lb_standins import StandIns, dial, greeting

pytestmark = pytest.mark.haproxy

# Made for this test, for 127.0.0.1 and a hundred years; protects nothing.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBkDCCATagAwIBAgIUaFQrn9NIexaxfvhBbSGXz8uvKu8wCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMTA4MzA1NloYDzIxMjYxMDI4
MDgzMDU2WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAASS5qoMZQvjaDB+thCSSXpy5IoFUuYIPLzKaNmbGM64/RM3cCt8Jdm/
fYIY9bolyDT+HRmGhavik7l/MSRNLMbEo2QwYjAdBgNVHQ4EFgQUpYhgVQzgk/M/
qQY9DwD9VruDWQowHwYDVR0jBBgwFoAUpYhgVQzgk/M/qQY9DwD9VruDWQowDwYD
VR0TAQH/BAUwAwEB/zAPBgNVHREECDAGhwR/AAABMAoGCCqGSM49BAMCA0gAMEUC
IQDvTfOiRgnFYZGHs5+6Unrzzjm9y7woS5MbfRNbXWcy7QIgRGFto5oz9/i13ICj
J/zxDJw9wa4Ys6jB9o5AFxZeR3Y=
-----END CERTIFICATE-----
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQggKkXL2snFf4c+8BA
ra0VxvclpQNs667hgqt0W/9rkG+hRANCAASS5qoMZQvjaDB+thCSSXpy5IoFUuYI
PLzKaNmbGM64/RM3cCt8Jdm/fYIY9bolyDT+HRmGhavik7l/MSRNLMbE
-----END PRIVATE KEY-----
"""


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.pem"
    path.write_text(CERTIFICATE)
    return path


@pytest.fixture
def proxy(certificate: Path) -> Iterator[HAProxy]:
    settings = {**FAST, "stickiness": "cookie", "frontend": {"certificate": str(certificate), "same_site": "None"}}
    with StandIns() as cluster, running_haproxy(cluster.nodes, settings) as haproxy:
        yield haproxy


@pytest.fixture
def trust(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


def test_client_is_served_over_tls(proxy: HAProxy, trust: ssl.SSLContext) -> None:
    with dial(proxy, ssl=trust) as connection:
        seen = greeting(connection)
        assert connection.response is not None
        cookie = connection.response.headers["Set-Cookie"]
        assert isinstance(connection.socket, ssl.SSLSocket)
        assert connection.socket.version() == "TLSv1.3"

    assert dict(seen["headers"])["X-Forwarded-Proto"] == "https"
    assert cookie == f"GATEWAY_NODE={seen['node']}; path=/; HttpOnly; Secure; SameSite=None"


def test_http_2_is_not_offered(proxy: HAProxy, trust: ssl.SSLContext) -> None:
    trust.set_alpn_protocols(["h2", "http/1.1"])
    with dial(proxy, ssl=trust) as connection:
        assert isinstance(connection.socket, ssl.SSLSocket)
        assert connection.socket.selected_alpn_protocol() == "http/1.1"


def test_old_ciphers_are_refused(proxy: HAProxy, trust: ssl.SSLContext) -> None:
    trust.maximum_version = ssl.TLSVersion.TLSv1_2
    trust.set_ciphers("ECDHE-ECDSA-AES128-SHA")

    with pytest.raises(ssl.SSLError):
        dial(proxy, ssl=trust)


def test_clear_text_is_refused(proxy: HAProxy) -> None:
    with pytest.raises((InvalidMessage, InvalidHandshake, OSError)):
        connect(f"ws://{LOOPBACK}:{proxy.port}/v1/connect", open_timeout=5)
