"""A node that cannot listen says which setting is concerned, why, and what to do."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from gateway.adapters.memory import MemoryEventLog, MemoryGridServer
from gateway.bootstrap import Gateway
from gateway.bootstrap.bound_ports import PortUnavailable
from gateway.settings import HostPort, Settings
from tests.support.nodes import QUICK

LOOPBACK = "127.0.0.1"


async def complaint(**settings: Any) -> str:
    """Start a node that cannot be started; returns what it says."""
    gateway = Gateway(Settings(**(QUICK | settings)), log=MemoryEventLog(), memory=MemoryGridServer())
    try:
        with pytest.raises(PortUnavailable) as raised:
            await gateway.start()
    finally:
        await gateway.close()
    return str(raised.value)


@pytest.mark.parametrize("setting", ["listen", "admin", "agent", "link"])
async def test_a_port_in_use_is_told_with_its_setting(setting: str) -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        where = HostPort(LOOPBACK, other.getsockname()[1])

        said = await complaint(**{setting: where, "dev": True})

    assert said == (
        f"{setting} {where}: another program listens there, perhaps a node that still runs; stop it, or give another "
        f"port by --{setting}"
    )


async def test_an_address_of_another_machine_is_told() -> None:
    said = await complaint(listen=HostPort("192.0.2.1", 8101))

    assert said == "listen 192.0.2.1:8101: this machine has no such address; give one that it has by --listen"


async def test_a_name_that_does_not_exist_is_told() -> None:
    said = await complaint(admin=HostPort("nobody.invalid", 9101))

    assert said.startswith("admin nobody.invalid:9101: there is no host of that name; give an address of this machine")
