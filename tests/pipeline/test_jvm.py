"""Of what Spark's JVM writes, users read what nobody else tells them."""

from __future__ import annotations

import io
from collections import deque

import pytest

from pipeline.jvm import _LOG, MARK, listen, reason_in

NOISE = "WARNING: Using incubator modules: jdk.incubator.vector"


def test_only_what_is_marked_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    told: deque[str] = deque(maxlen=2)

    listen(io.StringIO(f"{NOISE}\n\n{MARK}Spark warns: no workers\x1b[31m\nmore\nmost\n"), told)

    assert capsys.readouterr().err == f"{MARK}Spark warns: no workers\\x1b[31m\n"
    assert list(told) == ["more", "most"]


def test_warnings_are_marked() -> None:
    assert f"layout.pattern = {MARK}" in _LOG.read_text()


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            [NOISE, 'Exception in thread "main" org.apache.spark.SparkException: Not a master', "\tat a.b(C:1)"],
            "Not a master",
        ),
        (
            ["Invalid maximum heap size: -Xmx9z", "Error: Could not create the Java Virtual Machine."],
            "Invalid maximum heap size: -Xmx9z",
        ),
        (["Error: no such thing", "Run with --help for usage help"], "no such thing"),
        (["something else"], "something else"),
        ([], "its JVM ended without a word"),
    ],
)
def test_why_it_did_not_start_is_found(lines: list[str], reason: str) -> None:
    assert reason_in(lines) == reason
