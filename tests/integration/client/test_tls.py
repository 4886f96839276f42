"""The client over TLS: it trusts whom it is told to trust, and nobody else."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.client import ConnectFailed, Session, connect
from tests.support.scripted_server import ScriptedServer


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a certificate for 127.0.0.1 that nobody has signed."""
    folder = tmp_path_factory.mktemp("tls")
    path = folder / "server.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", path, "-out", folder / "certificate.pem"], check=True, capture_output=True)
    path.write_text(path.read_text() + (folder / "certificate.pem").read_text())
    return path


@pytest.fixture
async def server(nothing_left_over: None, certificate: Path) -> AsyncIterator[ScriptedServer]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    async with ScriptedServer(tls=context) as running:
        yield running


async def test_a_certificate_that_is_trusted_is_accepted(server: ScriptedServer, certificate: Path) -> None:
    trust = ssl.create_default_context(cafile=certificate)

    async def run() -> Session:
        return await connect(server.url, "alice", ssl=trust)

    opening = asyncio.create_task(run())
    peer = await server.connection()
    await peer.greet()
    session = await opening
    peer.answer_all()

    assert server.url.startswith("wss://")
    assert (await session.publish("a", 1)).version == 1
    await session.close()


async def test_a_certificate_that_is_not_trusted_is_told_at_once(server: ScriptedServer) -> None:
    with pytest.raises(ConnectFailed, match="certificate") as caught:
        await connect(server.url, "alice", "secret")
    assert not caught.value.retryable
    assert server.upgrades == 0, "the secret has not left"
