"""Requests are asked of the gateway and of NATS, and each is answered."""

from __future__ import annotations

import shutil

import pytest
from click.testing import CliRunner

from benchmarks import request_rate
from benchmarks.destinations import jetstream
from benchmarks.systems.nats import PROGRAM
from tests.support.times import scaled

pytestmark = pytest.mark.thorough


@pytest.mark.redis
@pytest.mark.skipif(shutil.which(PROGRAM) is None, reason="nats-server is not installed")
def test_all_requests_are_answered_by_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_rate, "ONE_BY_ONE", 5)
    monkeypatch.setattr(jetstream, "ANSWER_SECONDS", scaled(10.0))
    shown = CliRunner().invoke(request_rate.main, ["--requests", "64"])

    assert shown.exit_code == 0, shown.output
    assert [line.split("|")[1].strip() for line in shown.output.splitlines()[2:]] == [
        "gateway, 32 at a time",
        "gateway, one after the other",
        "NATS, 32 at a time",
        "NATS, one after the other",
    ]
