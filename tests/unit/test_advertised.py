"""Where a node says that others reach its admin port."""

from __future__ import annotations

import socket

import pytest

from gateway.bootstrap.parts import advertised_admin
from gateway.settings import HostPort, Settings

HERE = socket.gethostname()
EVERYWHERE = "0.0.0.0"


@pytest.mark.parametrize(
    ("admin", "advertised", "told"),
    [
        (HostPort("10.0.0.5", 0), None, "http://10.0.0.5:19101"),
        (HostPort(EVERYWHERE, 9101), None, f"http://{HERE}:19101"),
        (HostPort("::", 9101), None, f"http://{HERE}:19101"),
        (HostPort(EVERYWHERE, 9101), HostPort("n1.example.com", 9999), "http://n1.example.com:9999"),
        (HostPort(EVERYWHERE, 9101), HostPort("fd00::7", 0), "http://[fd00::7]:19101"),
    ],
)
def test_a_node_tells_where_its_admin_port_is(admin: HostPort, advertised: HostPort | None, told: str) -> None:
    assert advertised_admin(Settings(admin=admin, admin_advertise=advertised), port=19101) == told
