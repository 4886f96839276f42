"""The command line: exit codes, one line per mistake, no stack trace, no password."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from pipeline.cli import main, options
from pipeline.cli.options import spark_of
from pipeline.cli.program import program
from pipeline.cli.reference import reference_page
from pipeline.configuration import SETTINGS, Configuration
from pipeline.errors import NotReady, PipelineError
from pipeline.sentences import GONE, sentence_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """A command ``fail`` that raises what the test puts into the list."""
    errors: list[Exception] = []

    @click.command()
    def fail() -> None:
        raise errors.pop()

    monkeypatch.setitem(program.commands, "fail", fail)
    return errors


def test_the_reference_page_is_what_is_committed() -> None:
    committed = (ROOT / "docs" / "reference" / "pipeline.md").read_text("utf-8")

    assert committed == reference_page(), "run: python -m pipeline.cli.reference docs/reference/pipeline.md"


def test_the_reference_page_is_complete() -> None:
    page = reference_page()

    assert [name for name in SETTINGS if f"| `{name}` |" not in page] == []
    assert [name for name in program.load() if f"### `pipeline {name}" not in page] == []


def test_config_shows_what_is_in_force_without_passwords(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPELINE_GRID", "redis://me:hidden@127.0.0.1:6379/3")

    assert main(["config", "--trim-lag", "7"]) == 0

    told = capsys.readouterr().out
    assert "trim_lag = 7" in told
    assert "redis://me:…@127.0.0.1:6379/3" in told
    assert "hidden" not in told


def test_a_password_on_the_command_line_is_warned_of_and_not_repeated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["config", "--grid", "redis://me:hidden@127.0.0.1:6379/3"]) == 0
    told = capsys.readouterr()
    assert told.err.startswith(
        "pipeline: warning: --grid has a password in it, which every user of this machine can read"
    )
    assert "hidden" not in told.err + told.out

    monkeypatch.setenv("PIPELINE_GRID", "redis://me:hidden@127.0.0.1:6379/3")
    assert main(["config"]) == 0
    assert main(["config", "--grid", "redis://127.0.0.1:6379/3"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["config", "--trim-lag", "x"], "--trim-lag: 'x' is not a whole number"),
        (["config", "--config", "/nowhere"], "--config /nowhere: the file cannot be read"),
    ],
)
def test_what_a_user_did_wrong_is_told_in_a_line(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pipeline: error: ")
    assert expected in line


@pytest.mark.parametrize(
    ("error", "code"),
    [(PipelineError("it broke"), 1), (NotReady("decide"), 2), (OSError(28, "No space left"), 1), (ValueError("x"), 1)],
)
def test_errors_become_exit_codes_without_a_trace(
    error: Exception, code: int, raising: list[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    raising.append(error)

    assert main(["fail"]) == code

    told = capsys.readouterr().err
    assert str(error) in told
    assert "Traceback" not in told


def test_an_error_of_ours_is_found_in_what_spark_makes_of_it() -> None:
    text = (
        "Job aborted due to stage failure: Task 0 failed: org.apache.spark.api.python.PythonException: "
        "Traceback (most recent call last):\n"
        '  File "/x/pipeline/source/reading.py", line 3, in read\n'
        "pipeline.errors.NotReady: the journal was emptied; run again with --accept-loss\n\n"
        "\tat org.apache.spark.Some.java(Some.java:3)\n"
    )

    assert sentence_of(PySparkException(text)) == "the journal was emptied; run again with --accept-loss"


def test_an_error_of_the_system_is_found_in_what_spark_makes_of_it() -> None:
    text = "Job aborted\nTraceback (most recent call last):\nOSError: [Errno 28] No space left on device\n\tat a.b(C)\n"

    assert sentence_of(PySparkException(text)) == "[Errno 28] No space left on device"


def test_of_an_error_of_spark_its_first_line_is_told() -> None:
    assert sentence_of(PySparkException("[SOME_ERROR] What it is.\nat java")).startswith("[SOME_ERROR] What it is. (")


def test_of_an_error_of_the_jvm_the_beginning_and_the_cause_are_told() -> None:
    text = (
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": org.apache.spark.SparkException: External scheduler cannot be instantiated\n\tat a.b(C.java:1)\n"
        "Caused by: x.y.ClientException: An error\nCaused by: java.net.ConnectException: Connection refused\n"
    )

    told = sentence_of(Py4JError(text))

    assert told.startswith("External scheduler cannot be instantiated: Connection refused (")


def test_the_cause_of_an_error_of_spark_is_told() -> None:
    error = PySparkException("Error while instantiating 'x.Y':")
    error.__cause__ = PySparkException("\n[INVALID] partitions should be int, but was x")

    assert sentence_of(error).startswith(
        "Error while instantiating 'x.Y': [INVALID] partitions should be int, but was x ("
    )


class Speechless(Py4JError):  # type: ignore[misc]  # py4j has no types
    """An error of the JVM asks the JVM for its text."""

    def __str__(self) -> str:
        raise Py4JNetworkError("Answer from Java side is empty")


def test_an_error_of_a_jvm_that_has_died_is_told() -> None:
    assert sentence_of(Speechless()) == GONE
    error = PySparkException("[SOME_ERROR] What it is.")
    error.__cause__ = Speechless()
    assert sentence_of(error).startswith("[SOME_ERROR] What it is. (")


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "x")]
)
def test_a_jvm_that_is_gone_is_told(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "spark_session", lambda *_args, **_settings: None)

    with (
        pytest.raises(PipelineError, match=r"Spark's JVM is gone; .*--spark-conf spark.driver.memory=4g"),
        spark_of(Configuration(), "test"),
    ):
        raise error
