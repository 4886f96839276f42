"""Every peer does the work that it is measured by, as the generator sees it: all delivered, in order, unchanged."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.generator.driver import Load, drive
from benchmarks.progress import Silent
from benchmarks.references.redis_bare import measure
from benchmarks.systems.bare_aiohttp import BareAiohttp
from benchmarks.systems.base import (
    Role,
    Running,
    StartOptions,
    SystemFailed,
    SystemUnavailable,
    SystemUnderTest,
)
from benchmarks.systems.c_floor import CFloor
from benchmarks.systems.mosquitto import Mosquitto
from benchmarks.systems.nats import Nats
from benchmarks.systems.nchan import Nchan, NchanRedis
from benchmarks.systems.python_socketio import PythonSocketIo
from benchmarks.systems.socketio import SocketIo
from tests.benchmarks.peers import CORES, prepared, receive, upgraded
from tests.support.times import scaled

pytestmark = pytest.mark.thorough

LOAD = Load(subscribers=12, topics=4, publishers=2, updates=400, warm_up=0, measure=60, patience=20)

SYSTEMS: tuple[type[SystemUnderTest], ...] = (
    CFloor,
    BareAiohttp,
    PythonSocketIo,
    Nchan,
    NchanRedis,
    Nats,
    Mosquitto,
    SocketIo,
)


@pytest.fixture(params=SYSTEMS, ids=lambda each: each.name)
def system(request: pytest.FixtureRequest, tmp_path: Path) -> SystemUnderTest:
    """Each system that is installed here; the others are skipped with what is missing."""
    made: SystemUnderTest = request.param()
    return prepared(made, tmp_path)


def test_everything_arrives_once_in_order_and_unchanged(system: SystemUnderTest, generator: Path) -> None:
    with system.running(CORES, StartOptions()) as running:
        report = drive(
            generator, running.endpoint, LOAD, topic="peer", core=None, progress=Silent(), pids=running.pids()
        )
        running.alive()

    assert report.failures == {}
    assert report.raw["total_published"] == 400
    assert report.raw["total_delivered"] == 400 * 12 // 4


def test_what_was_started_is_on_its_core_and_is_gone_afterwards(system: SystemUnderTest) -> None:
    with system.running(CORES, StartOptions()) as running:
        pids = running.pids()
        bound = {role: {core for pid in each for core in os.sched_getaffinity(pid)} for role, each in pids.items()}
        started = [Path(f"/proc/{pid}") for each in pids.values() for pid in each]
        assert all(each.exists() for each in started)

    assert bound.pop(Role.SERVER) == {CORES.server}
    assert all(each == {CORES.others} for each in bound.values())
    assert not [each for each in started if each.exists()]


def test_versions_and_settings_are_told(system: SystemUnderTest) -> None:
    assert system.versions()
    assert all(system.versions().values())
    assert system.settings()


def test_an_unknown_setting_is_refused(system: SystemUnderTest) -> None:
    with (
        pytest.raises(SystemFailed, match="nonsense"),
        system.running(CORES, StartOptions(extra={"nonsense": "1"})),
    ):
        pass


@pytest.fixture
def floor(tmp_path: Path) -> Iterator[Running]:
    """A running C floor."""
    with prepared(CFloor(), tmp_path).running(CORES, StartOptions()) as running:
        yield running


def test_the_floor_never_drops_for_a_slow_subscriber_but_makes_publishers_wait(floor: Running) -> None:
    value, count = b"x" * 4_000, 6_000
    request = b"POST /pub?id=slow HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n" + value
    frame = b"\x81\x7e\x0f\xa0" + value
    with upgraded(floor.endpoint, "slow") as subscriber, _connected(floor) as publisher:
        pending = memoryview(request * count)
        # Until neither the kernel nor the floor takes more: the subscriber does not read these 24 MB.
        publisher.settimeout(1)
        with contextlib.suppress(TimeoutError):
            while pending:
                pending = pending[publisher.send(pending) :]
        assert pending
        received = bytearray()
        publisher.setblocking(False)
        while len(received) < len(frame) * count:
            received += subscriber.recv(1 << 20)
            try:
                pending = pending[publisher.send(pending) :]
            except BlockingIOError:
                continue

    assert received == frame * count


def test_the_floor_joins_what_a_turn_of_its_loop_brings(floor: Running) -> None:
    value, count = b"x" * 40, 100
    request = b"POST /pub?id=joined HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\n\r\n" + value
    frame = b"\x81\x28" + value
    with upgraded(floor.endpoint, "joined") as subscriber, _connected(floor) as publisher:
        # It makes more room for whoever has published once.
        publisher.sendall(request)
        assert receive(subscriber, len(frame)) == frame
        publisher.sendall(request * count)

        # One read, because it was one write.
        assert subscriber.recv(1 << 20) == frame * count
        answer = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
        expected = answer * (1 + count)
        assert receive(publisher, len(expected)) == expected


@pytest.mark.parametrize("size", [0, 5, 125, 126, 300, 4_000])
def test_the_floor_sends_back_what_an_echo_connection_says(floor: Running, size: int) -> None:
    text, mask = bytes(97 + number % 26 for number in range(size)), b"\x01\x02\x03\x04"
    masked = bytes(each ^ mask[place % 4] for place, each in enumerate(text))
    short = size < 126
    head = bytes([0x81, 0x80 | size]) if short else bytes([0x81, 0xFE, size >> 8, size & 0xFF])
    expected = (bytes([0x81, size]) if short else bytes([0x81, 126, size >> 8, size & 0xFF])) + text
    with upgraded(replace(floor.endpoint, subscribe_target="/echo"), "") as client:
        # In two pieces, and twice: a frame is taken only when it is whole.
        client.sendall(head + mask + masked[: size // 2])
        client.sendall(masked[size // 2 :] + head + mask + masked)

        assert receive(client, 2 * len(expected)) == expected * 2


def test_the_floor_refuses_what_it_does_not_know(floor: Running) -> None:
    connection = http.client.HTTPConnection(floor.endpoint.host, floor.endpoint.port, timeout=scaled(10))
    connection.request("GET", "/elsewhere")
    assert connection.getresponse().status == http.HTTPStatus.BAD_REQUEST
    connection.close()
    floor.alive()


def _connected(running: Running) -> socket.socket:
    return socket.create_connection((running.endpoint.host, running.endpoint.port), timeout=scaled(10))


def test_a_system_that_was_not_prepared_says_so() -> None:
    for system in (CFloor(), SocketIo(), Nats()):
        with pytest.raises(SystemFailed, match="not prepared"), system.running(CORES, StartOptions()):
            pass


def test_a_missing_nginx_is_unavailable_and_not_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("benchmarks.systems.nchan.ADMINISTRATORS_PATH", str(tmp_path))
    with pytest.raises(SystemUnavailable, match="bench-packages"):
        Nchan().prepare(tmp_path)
    with pytest.raises(SystemUnavailable, match="bench-packages"):
        SocketIo().prepare(tmp_path)


def test_bare_redis_is_measured_in_all_ways() -> None:
    try:
        result = measure(CORES, seconds=0.05)
    except SystemUnavailable as reason:
        pytest.skip(str(reason))

    assert {(each.client, each.writers) for each in result.rates} == {("sync", 1), ("asyncio", 1), ("asyncio", 2)}
    assert all(each.per_second > 0 and each.cpu_per_entry_us > 0 for each in result.rates)
    assert result.best in result.rates
    assert result.round_trip_p50_us > 0
    assert result.sync_round_trip_p50_us > 0
    assert result.redis_cpu_per_entry_us > 0
