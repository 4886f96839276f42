"""What the commands have in common: flags made from the declarations of the settings, and a Spark to work with."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from gateway.settings import ConfigurationError, Problem
from gateway.settings.declaration import Setting
from gateway.settings.exposure import on_command_lines
from pipeline.configuration import SETTINGS, Configuration, load
from pipeline.errors import PipelineError
from pipeline.sentences import GONE
from pipeline.spark import LOCAL, SUBMITTED, spark_session

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

SPARK: Final = ("lake", "master", "spark_conf")
"""The settings of every command that runs Spark over the tables."""


def configured(*names: str) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Give a command ``--config`` and a flag for each of some settings.

    The command gets the settings, checked, as its keyword ``configuration``. Those without a flag here still come from
    the environment and the file.

    Args:
        names: of the settings.
    """

    def decorate(function: Callable[..., int | None]) -> Callable[..., int | None]:
        @functools.wraps(function)
        def command(*, file: Path | None, **given: Any) -> int | None:
            flags = {name: text for name in names if (text := given.pop(name)) is not None}
            configuration = load(flags=flags, file=file)
            for warning in on_command_lines(configuration.grid, lambda name: f"--{name}" if name in flags else ""):
                click.echo(f"pipeline: warning: {warning}", err=True)
            return function(configuration=configuration, **given)

        for each in reversed([SETTINGS[name] for name in names]):
            command = _flag_of(each)(command)
        return click.option(
            "--config",
            "file",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="Read settings from this TOML file. [default: PIPELINE_CONFIG, if set]",
        )(command)

    return decorate


def _flag_of(each: Setting) -> Callable[[FunctionT], FunctionT]:
    return click.option(
        each.flag or each.name,
        each.name,
        metavar=each.declared.kind.metavar,
        help=f"{each.declared.meaning} [default: {each.shown_default}]",
    )


def needed(configuration: Configuration, name: str) -> Any:
    """Take the value of a setting that a command cannot do without.

    Raises:
        ConfigurationError: nobody gave one.
    """
    value = getattr(configuration, name)
    if value is None:
        each = SETTINGS[name]
        remedy = f"give {each.flag}, {each.variable} or the key {name} of the file: {each.declared.kind.accepts}"
        raise ConfigurationError([Problem(name, "this command needs it", remedy)])
    return value


@contextmanager
def spark_of(
    configuration: Configuration, name: str, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Start Spark as configured, and stop it at the end.

    Args:
        configuration: says where, and with which settings.
        name: of the job, for Spark's own pages.
        settings: of Spark, that this job needs; those of the configuration win.
    """
    master = configuration.master or (None if SUBMITTED in os.environ else LOCAL)
    given = dict(each.split("=", 1) for each in configuration.spark_conf)
    context = click.get_current_context(silent=True)
    quiet = context is None or not context.find_root().params.get("traceback")
    spark = spark_session(f"pipeline {name}", master=master, settings={**(settings or {}), **given}, quiet=quiet)
    try:
        yield spark
    except (Py4JNetworkError, ConnectionError):
        # Of other connections our own code tells by errors of its own.
        raise PipelineError(GONE) from None
    except BaseException:
        with suppress(Py4JError, OSError):
            spark.stop()
        raise
    spark.stop()
