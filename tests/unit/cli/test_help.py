"""Help: told as such, in the words of each command, and without loading what it does not need."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gateway.cli.program import program
from gateway.lazy_commands import LazyGroup
from pipeline.cli.program import program as pipeline_program
from tests.support.times import scaled
from tests.unit.cli.conftest import Run

HEAVY = (
    *("aiohttp", "cryptography", "jinja2", "jwt", "lark", "pandas", "prometheus_client", "py4j", "pydantic", "pyspark"),
    *("redis", "rich", "structlog", "uvloop", "gateway.settings", "gateway.client", "gateway.adapters"),
)
"""What costs a tenth of a second, or more, to import."""


def groups(group: click.Command) -> Iterator[LazyGroup]:
    if isinstance(group, LazyGroup):
        yield group
        for each in group.load().values():
            yield from groups(each)


@pytest.mark.parametrize("group", [*groups(program), *groups(pipeline_program)], ids=lambda each: each.name)
def test_a_group_says_of_its_commands_what_they_say_themselves(group: LazyGroup) -> None:
    said = {name: where.summary for name, where in group.lazy.items()}

    for name, command in group.load().items():
        first = " ".join((command.help or "").split("\n\n")[0].split())
        assert first.startswith(said[name]), name
        assert said[name].endswith("."), name


@pytest.mark.parametrize("arguments", [(), ("admin",), ("admin", "token"), ("keys",)], ids=" ".join)
def test_a_group_without_a_command_shows_its_help_and_no_error(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)

    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Usage: gateway")
    assert "gateway: error" not in result.err
    assert result.err == run(*arguments, "--help").out


def loaded(*command: str, environment: dict[str, str] | None = None) -> set[str]:
    """Run a program in a process of its own; returns the modules that it has loaded."""
    script = (
        "import sys, atexit\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        f"sys.argv = {list(command)!r}\n"
        f"from {command[0]}.cli import main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(30),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "command",
    [
        ("gateway", "--help"),
        ("gateway", "--version"),
        ("gateway", "admin", "--help"),
        ("pipeline", "--help"),
        ("pipeline", "--version"),
        ("lb", "--help"),
        ("lb", "--version"),
    ],
    ids=" ".join,
)
def test_help_loads_nothing_that_it_does_not_need(command: tuple[str, ...]) -> None:
    assert sorted(loaded(*command) & set(HEAVY)) == []


def test_a_shell_can_complete_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'gateway'; from gateway.cli import main; sys.exit(main())"],
        env=os.environ | {"_GATEWAY_COMPLETE": "bash_complete", "COMP_WORDS": "gateway admin se", "COMP_CWORD": "2"},
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(30),
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["plain,sessions", "plain,set"]


def test_without_spark_the_pipeline_shows_its_help_and_says_what_is_missing(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("pyspark", "py4j", "pandas", "pyarrow"):
        (bare / f"{name}.py").write_text(f"raise ModuleNotFoundError(name={name!r})\n")
    environment = {"PYTHONPATH": os.pathsep.join([str(bare), *sys.path])}

    assert "pyspark" not in loaded("pipeline", "--help", environment=environment)
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", "ingest"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(30),
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "is not installed, which this command needs; install the extra `pipeline`" in done.stderr
    assert "Traceback" not in done.stderr
