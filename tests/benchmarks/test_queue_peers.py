"""A queue of JetStream and one of the gateway are given the same work."""

from __future__ import annotations

import shutil

import pytest
from click.testing import CliRunner

from benchmarks import queue_peers
from benchmarks.systems.base import SystemUnavailable

pytestmark = pytest.mark.thorough


@pytest.mark.redis
@pytest.mark.skipif(shutil.which(queue_peers.PROGRAM) is None, reason="nats-server is not installed")
def test_all_messages_are_acknowledged_at_both() -> None:
    shown = CliRunner().invoke(queue_peers.main, ["--messages", "50"])
    assert shown.exit_code == 0, shown.output
    assert [line.split("|")[1].strip().split(":")[0].split(",")[0] for line in shown.output.splitlines()[2:]] == [
        "message sent",
        "message sent",
        "JetStream",
        "JetStream",
    ]


def test_without_the_program_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _program: None)
    failed = CliRunner().invoke(queue_peers.main, []).exception
    assert isinstance(failed, SystemUnavailable)
    assert "apt-get install nats-server" in str(failed)
