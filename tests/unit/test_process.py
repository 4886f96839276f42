"""The process of a node, with a node that does nothing: signals."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from gateway.bootstrap import process
from gateway.settings import Settings, load


class IdleGateway:
    """Counts what it is asked; is told to read again while it starts, and to stop once it has done so."""

    def __init__(self, settings: Settings, *, log: object, descriptors: object) -> None:
        self.reloads = 0
        IdleGateway.last = self

    last: IdleGateway

    async def start(self) -> None:
        os.kill(os.getpid(), signal.SIGHUP)

    def status(self) -> str:
        return "idle"

    def reload(self) -> None:
        self.reloads += 1
        os.kill(os.getpid(), signal.SIGTERM)

    async def drain(self) -> None:
        return

    async def close(self) -> None:
        return


@pytest.fixture
def sighup_is_harmless() -> Iterator[None]:
    """Without the handler under test the signal would end the test run."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


def test_a_reload_asked_for_while_the_node_starts_is_done_once_it_has(
    sighup_is_harmless: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(process, "Gateway", IdleGateway)
    monkeypatch.setattr(process, "collect_seldom", lambda: None)

    assert process.run(load(flags={"node": "n1", "dev": "true"}).settings) == 0

    assert IdleGateway.last.reloads == 1
