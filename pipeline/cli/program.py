"""The program: its commands, and how everything that goes wrong is told.

Whatever happens, a user gets one line per problem on standard error, ``pipeline: error: …``, and an exit code:
0 done, 1 it failed while running, 2 something has to be corrected first (a flag, a file, a value, a decision).
"""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import click

from gateway import __version__
from gateway.lazy_commands import LazyCommand, LazyGroup

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
"""As shells report a program that was ended by Ctrl-C."""

_OPTIONAL: Final = frozenset({"matplotlib", "numpy", "pandas", "py4j", "pyarrow", "pyspark"})
"""What only the pipeline needs, so that it may be missing where the gateway is installed."""

HOW_TO_INSTALL: Final = "install the extra `pipeline` of the gateway's package"
"""What to do about it."""

_BACKFILL: Final = (
    "Make the table of sessions anew from bronze: all of it, or the sessions that were opened on some days (UTC)."
)
_REPORT: Final = (
    "Write a page about some days: the objective, comebacks, incidents with the timelines of sessions, and more."
)

_COMMANDS: Final = {
    name: LazyCommand(f"pipeline.cli.{module}", name, summary)
    for name, module, summary in (
        ("ingest", "ingest", "Take the journal into bronze: each event once, whatever crashes on the way."),
        (
            "sessions",
            "sessions",
            "Bring what is new in bronze into the table of sessions: one row each, with its timeline.",
        ),
        (
            "backfill",
            "backfill",
            _BACKFILL,
        ),
        (
            "gold",
            "gold",
            "Make the gold tables of events and sessions: objectives, incidents, storms, traffic and more.",
        ),
        (
            "report",
            "report",
            _REPORT,
        ),
        (
            "publish",
            "publish",
            "Publish live gold as topics ops/…, so that a dashboard subscribes to it like to anything else.",
        ),
        (
            "compact",
            "compact",
            "Put the small files of each past hour of bronze together, and remove what is too old from all tables.",
        ),
        (
            "forget",
            "forget",
            "Erase a principal from all tables: bronze, silver, gold and what the stream of sessions knows.",
        ),
        ("generate", "generate", "Make a synthetic journal: sessions, deploys, deaths, storms and losses."),
        (
            "config",
            "configuration",
            "Print every setting with its value and meaning, as the other commands would have it.",
        ),
    )
}


@click.group(
    cls=LazyGroup,
    lazy=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="pipeline")
@click.option("--traceback", is_flag=True, help="Show where an error came from.")
def program(*, traceback: bool) -> None:
    """What the session journal tells: what happened, to whom, and was it within promise."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        arguments: those of the command line by default.

    Returns:
        The exit code; nothing is raised.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        result = program.main(list(arguments), prog_name="pipeline", standalone_mode=False)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except SystemExit:
        # Only when whoever read our output (a pager, head) has seen enough: click has silenced the rest by then.
        return 0
    except Exception as error:  # noqa: BLE001 - the last line of defence before the user
        if "--traceback" in arguments:
            traceback.print_exc()
        return _tell(error)
    return result if isinstance(result, int) else 0


def _tell(error: Exception) -> int:
    """Tell the user of *error*; returns the exit code."""
    # Imported here: neither --help nor --version needs them.
    from gateway.core.wire.errors import GatewayError  # noqa: PLC0415
    from gateway.settings.errors import ConfigurationError  # noqa: PLC0415
    from pipeline.errors import NotReady  # noqa: PLC0415

    match error:
        case click.exceptions.NoArgsIsHelpError():
            click.echo(error.format_message(), err=True)
            return EXIT_USAGE
        case ModuleNotFoundError() if (error.name or "").partition(".")[0] in _OPTIONAL:
            _complain(f"{error.name} is not installed, which this command needs; {HOW_TO_INSTALL}")
            return EXIT_USAGE
        case ConfigurationError():
            for problem in error.problems:
                _complain(str(problem))
            return EXIT_USAGE
        case click.UsageError():
            command = error.ctx.command_path if error.ctx is not None else "pipeline"
            _complain(f"{error.format_message().rstrip('.')}; see `{command} --help`")
            return EXIT_USAGE
        case click.ClickException():
            _complain(error.format_message())
            return error.exit_code
        case NotReady():
            _complain(str(error))
            return EXIT_USAGE
        case GatewayError() | OSError():
            _complain(str(error) or type(error).__name__)
            return EXIT_FAILED
    return _tell_of_spark(error)


def _tell_of_spark(error: Exception) -> int:
    """Tell of what is no error of ours: of Spark, if there is one, or a bug."""
    with suppress(ModuleNotFoundError):
        from py4j.protocol import Py4JError  # type: ignore[import-untyped] # noqa: PLC0415
        from pyspark.errors import PySparkException  # noqa: PLC0415

        if isinstance(error, PySparkException | Py4JError):
            from pipeline.sentences import sentence_of  # noqa: PLC0415

            _complain(sentence_of(error))
            return EXIT_FAILED
    _complain(f"this is a bug: {type(error).__name__}: {error} (pipeline --traceback … shows where)")
    return EXIT_FAILED


def _complain(message: str) -> None:
    for line in message.splitlines() or [""]:
        click.echo(f"pipeline: error: {line}", err=True)
