"""Strangers at the port of zone links, before anything was said: TLS and certificates, or nothing (Z8)."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from gateway.adapters.memory import MemoryMetrics
from gateway.adapters.tls import CertificateError, ZoneTls
from gateway.adapters.zone_links import StreamZoneLinks
from gateway.catalogue import zone_link_metrics as catalogue
from gateway.ports.zone_links import NoZoneLink
from tests.contract.zone_link_harness import PATIENT, Port, StreamZoneHarness, is_broken
from tests.support.certificates import Authority
from tests.support.clock import eventually
from tests.support.times import time_limit


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[StreamZoneHarness]:
    harness = StreamZoneHarness(tmp_path)
    yield harness
    await harness.close()


def place(port: Port) -> tuple[str, int]:
    host, _, number = port.links.url.removeprefix("wss://").rpartition(":")
    return host, int(number)


async def hung_up(reader: asyncio.StreamReader) -> bool:
    async with time_limit():
        try:
            while await reader.read(1000):
                pass
        except OSError:
            pass
    return True


async def test_clear_text_is_hung_up(harness: StreamZoneHarness) -> None:
    port = await harness.port("b")
    reader, writer = await asyncio.open_connection(*place(port))
    writer.write(struct.pack(">I", 2) + b"hi")
    assert await hung_up(reader)
    assert port.accepted.empty()
    writer.close()
    await eventually(lambda: harness.metrics["b"].count(catalogue.ZONE_LINKS_REFUSED, label="tls") == 1)


async def test_nobody_gets_in_without_a_certificate(harness: StreamZoneHarness) -> None:
    port = await harness.port("b")
    context = ssl.create_default_context(cafile=str(harness.authority.file))
    context.check_hostname = False
    reader, writer = await asyncio.open_connection(*place(port), ssl=context)
    writer.write(struct.pack(">I", 2) + b"hi")
    assert await hung_up(reader)
    assert port.accepted.empty()
    writer.close()


async def test_a_certificate_of_another_authority_is_refused_at_both_ends(
    harness: StreamZoneHarness, tmp_path: Path
) -> None:
    port = await harness.port("b")
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    liar = ZoneTls(other.issue("a", "a"), key=None, ca=harness.authority.file)
    reader, writer = await asyncio.open_connection(*place(port), ssl=liar.dialing())
    assert await hung_up(reader)
    assert port.accepted.empty()
    writer.close()
    # Nor does a node take such a port for that of a cluster.
    said = asyncio.Event()

    async def listen(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said.set()
        writer.close()

    server = await asyncio.start_server(
        listen, "127.0.0.1", 0, ssl=ZoneTls(other.issue("c", "c"), key=None, ca=other.file).accepting()
    )
    url = f"wss://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(NoZoneLink, match="CERTIFICATE_VERIFY_FAILED"):
        await port.links.dial(url, within=PATIENT)
    assert not said.is_set()
    server.close()


async def test_older_tls_is_refused(harness: StreamZoneHarness) -> None:
    port = await harness.port("b")
    context = harness.tls("a").dialing()
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection(*place(port), ssl=context)
    assert port.accepted.empty()


async def test_who_says_nothing_has_no_place_for_long(
    harness: StreamZoneHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.adapters.zone_links.links.HANDSHAKE_SECONDS", 0.1)
    port = await harness.port("b")
    reader, writer = await asyncio.open_connection(*place(port))
    assert await hung_up(reader)
    writer.close()


async def test_a_length_beyond_all_bounds_takes_no_memory(harness: StreamZoneHarness) -> None:
    port = await harness.port("b", trusts=False)
    _, writer = await asyncio.open_connection(*place(port), ssl=harness.tls("a").dialing())
    writer.write(struct.pack(">I", 2**32 - 1) + b"x" * 1000)
    async with time_limit():
        connection = await port.accepted.get()
    assert await is_broken(connection)
    writer.close()


async def test_a_port_that_does_not_listen_can_dial(harness: StreamZoneHarness) -> None:
    port = await harness.port("b")
    silent = StreamZoneLinks(None, 0, advertised=("", 0), tls=harness.tls("a"), metrics=MemoryMetrics())
    assert silent.url == ""
    await silent.start(port.serve)
    connection = await silent.dial(port.links.url, within=PATIENT)
    await connection.send(b"here")
    assert await (await port.accepted.get()).receive() == b"here"
    await silent.close()


def test_files_that_cannot_be_used_are_named(harness: StreamZoneHarness, tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match=r"nothing\.pem"):
        ZoneTls(tmp_path / "nothing.pem", key=None, ca=harness.authority.file)


def test_a_fingerprint_is_that_of_the_certificate(harness: StreamZoneHarness) -> None:
    file = harness.authority.issue("a", "a")
    certificate = x509.load_pem_x509_certificates(file.read_bytes())[0]
    expected = hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()
    assert ZoneTls(file, key=None, ca=harness.authority.file).fingerprint == expected
