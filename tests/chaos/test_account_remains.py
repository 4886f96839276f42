"""What the account finds in what is left at the end: keys, connections and logs."""

from __future__ import annotations

from tests.chaos.account.remains import (
    LOUD,
    MOST_CONNECTIONS,
    Key,
    judge_connections,
    judge_keys,
    judge_log,
)
from tests.chaos.account.violation import generation_of
from tests.chaos.histories import SECOND, line, promises


def test_keys_of_sessions_have_an_end() -> None:
    keys = [
        Key("gateway:{s1}:session:abc", -1),
        Key("gateway:{t1}:receipts:abc", 5_000),
        Key("gateway:{t1}:receipts:xyz", -1),
        Key("gateway:{t1}:values", -1),
    ]
    violations = judge_keys(9.0, keys, {"abc": True, "xyz": False})
    assert [violation.who for violation in violations] == [keys[0].name, keys[2].name]
    assert "confirmed" in violations[0].what
    assert "confirmed" not in violations[1].what


def test_connections_are_bounded() -> None:
    assert judge_connections(1.0, "redis", 3 * MOST_CONNECTIONS, 3) == []
    assert promises(judge_connections(1.0, "redis", 3 * MOST_CONNECTIONS + 1, 3)) == ["P10"]


def test_logs_tell_of_bugs_and_noise() -> None:
    quiet = [line("grid_unreachable", 100 + 2 * number) for number in range(50)]
    assert judge_log("n1", quiet, began=100) == []
    loud = [line("grid_unreachable", 100 + number / 10) for number in range(50)]
    assert promises(judge_log("n1", loud, began=100)) == ["P10"]
    assert LOUD["grid_unreachable"] <= 50
    bugs = [
        line("background_task_failed", 101, task="tail", error="boom"),
        line("session_opened", 102, "info", exception="Traceback"),
        "Traceback (most recent call last):",
    ]
    assert promises(judge_log("n1", bugs, began=100)) == ["bug", "bug", "bug"]


def test_generations_are_read_from_versions() -> None:
    assert [generation_of(version) for version in (1, SECOND - 1, SECOND, 2 * SECOND + 7)] == [1, 1, 2, 3]
