"""A query that fails because the machine is busy goes on from its checkpoint, and one that fails otherwise does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from pipeline import streaming
from pipeline.sentences import is_busy
from pipeline.streaming import PAUSES, run_query

BUSY = (
    "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: Task 0 in stage 2.0 "
    "failed 1 times: org.apache.spark.SparkException: Python worker failed to connect back.\n"
    "\tat org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(PythonWorkerFactory.scala:256)"
)
PLANNING = "java.io.IOException: Timed out while waiting for the Python worker to connect back after 10000 ms"


class Machine:
    """Runs queries: each ends as the next word says, an error's text or none."""

    def __init__(self, *words: str | None) -> None:
        self.words = list(words)
        self.started = 0
        self.done = 0
        self.paused: list[float] = []
        self.told: list[str] = []

    def start(self) -> StreamingQuery:
        self.started += 1
        return cast("StreamingQuery", Query(self))

    def run(self, wanted: Callable[[], bool] = lambda: True) -> None:
        run_query(self.start, self.told.append, wanted, lambda: self.done)


class Query:
    """One run of a query."""

    isActive = False  # noqa: N815 - Spark's name

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def awaitTermination(self, _seconds: float) -> bool:  # noqa: N802 - Spark's name
        if (word := self._machine.words.pop(0)) is None:
            return True
        raise StreamingQueryException(word)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Nobody waits; returns the pauses that there would be."""
    paused: list[float] = []

    def rest(seconds: float, wanted: Callable[[], bool]) -> bool:
        paused.append(seconds)
        return wanted()

    monkeypatch.setattr(streaming, "_rest", rest)
    return paused


@pytest.mark.parametrize("text", [BUSY, PLANNING])
def test_a_query_whose_worker_did_not_connect_back_is_started_again(text: str, hurried: list[float]) -> None:
    machine = Machine(text, text, None)
    machine.run()
    assert (machine.started, hurried) == (3, list(PAUSES[:2]))
    assert all("this machine is very busy" in each for each in machine.told)


def test_it_is_not_tried_for_ever(hurried: list[float]) -> None:
    machine = Machine(*[BUSY] * 20)
    with pytest.raises(StreamingQueryException):
        machine.run()
    assert (machine.started, hurried) == (len(PAUSES) + 1, list(PAUSES))


def test_who_gets_on_meanwhile_has_all_tries_again(hurried: list[float]) -> None:
    machine = Machine(*[BUSY] * 20, None)

    class Slow(Query):
        def awaitTermination(self, seconds: float) -> bool:  # noqa: N802 - Spark's name
            machine.done += 1
            return super().awaitTermination(seconds)

    machine.start = lambda: cast("Any", Slow(machine))  # type: ignore[method-assign]
    machine.run()
    assert hurried == [PAUSES[0]] * 20


def test_another_error_ends_the_job(hurried: list[float]) -> None:
    machine = Machine("[STREAM_FAILED] pipeline.errors.NotReady: the journal was emptied", None)
    with pytest.raises(StreamingQueryException):
        machine.run()
    assert (machine.started, hurried) == (1, [])


def test_nobody_waits_for_what_nobody_wants(hurried: list[float]) -> None:
    machine = Machine(BUSY, None)
    machine.run(lambda: False)
    assert (machine.started, len(hurried)) == (1, 1)


def test_a_busy_machine_is_told_from_the_cause_of_an_error() -> None:
    error = RuntimeError("[STREAM_FAILED]")
    error.__cause__ = ValueError(BUSY)
    assert is_busy(error)
    assert not is_busy(RuntimeError("No space left on device"))
