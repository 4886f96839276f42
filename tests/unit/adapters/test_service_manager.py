"""What systemd is told, read from a real datagram socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from gateway.adapters.service_manager import LONGEST_STATUS, Systemd


class Listener:
    """systemd's end."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(5)
        self.environment = {"NOTIFY_SOCKET": address}

    def heard(self) -> list[str]:
        return self.socket.recv(4096).decode().splitlines()


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listener]:
    listener = Listener(str(tmp_path / "notify") if request.param == "path" else f"@gateway-test-{uuid4()}")
    yield listener
    listener.socket.close()


def test_the_stages_of_a_life_are_told(listener: Listener) -> None:
    systemd = Systemd(listener.environment)

    systemd.ready()
    assert listener.heard() == ["READY=1"]
    systemd.reloading()
    reloading, since = listener.heard()
    assert reloading == "RELOADING=1"
    assert int(since.removeprefix("MONOTONIC_USEC=")) > 0
    systemd.stopping()
    assert listener.heard() == ["STOPPING=1"]
    systemd.alive()
    assert listener.heard() == ["WATCHDOG=1"]


def test_a_status_is_one_bounded_line_and_no_other_assignment(listener: Listener) -> None:
    systemd = Systemd(listener.environment)

    systemd.status("3 sessions;\nMAINPID=1 " + "x" * 1000)

    (line,) = listener.heard()
    assert line.startswith("STATUS=3 sessions; MAINPID=1 xxx")
    assert len(line) == len("STATUS=") + LONGEST_STATUS


@pytest.mark.parametrize("address", ["", "relative", "/nobody/is/there"])
def test_without_a_listener_nothing_happens(address: str) -> None:
    systemd = Systemd({"NOTIFY_SOCKET": address})
    systemd.ready()
    systemd.status("well")


def test_a_listener_that_does_not_read_holds_nobody_up(listener: Listener) -> None:
    systemd = Systemd(listener.environment)
    for _ in range(10_000):
        systemd.alive()
    assert listener.heard() == ["WATCHDOG=1"]


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_this_process_and_has_a_time(given: dict[str, str], seconds: float | None) -> None:
    assert Systemd({"NOTIFY_SOCKET": "/run/systemd/notify", **given}).watchdog == seconds


def test_there_is_no_watchdog_without_somebody_to_tell() -> None:
    assert Systemd({"WATCHDOG_USEC": "30000000"}).watchdog is None
