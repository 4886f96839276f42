"""What a takeover costs is measured on what a failed node leaves behind."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from benchmarks import takeover
from tests.support.times import scaled

pytestmark = pytest.mark.thorough


@pytest.mark.redis
def test_all_that_is_left_behind_is_taken_over_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "QUIET", 0.5)
    monkeypatch.setattr(takeover, "WINDOW", 1.0)
    monkeypatch.setattr(takeover, "PATIENCE", scaled(60.0))
    shown = CliRunner().invoke(takeover.main, ["--sessions", "20", "--messages", "60"])
    assert shown.exit_code == 0, shown.output
    assert [line.split("|")[1].strip() for line in shown.output.splitlines()[2:]] == [
        "nothing happens",
        "lease ended: takeover",
        "windows run and end: messages wait for others",
    ]
