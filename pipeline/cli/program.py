"""The program: its commands, and how everything that goes wrong is told.

Whatever happens, a user gets one line per problem on standard error, ``pipeline: error: …``, and an exit code:
0 done, 1 it failed while running, 2 something has to be corrected first (a flag, a file, a value, a decision).
"""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Final

import click
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from gateway import __version__
from gateway.core.wire.errors import GatewayError
from gateway.settings import ConfigurationError
from pipeline.cli.backfill import backfill
from pipeline.cli.compact import compact
from pipeline.cli.configuration import config
from pipeline.cli.generate import generate
from pipeline.cli.gold import gold
from pipeline.cli.ingest import ingest
from pipeline.cli.publish import publish
from pipeline.cli.report import report
from pipeline.cli.sentences import sentence_of
from pipeline.cli.sessions import sessions
from pipeline.errors import NotReady

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
"""As shells report a program that was ended by Ctrl-C."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="pipeline")
@click.option("--traceback", is_flag=True, help="Show where an error came from.")
def program(*, traceback: bool) -> None:
    """What the session journal tells: what happened, to whom, and was it within promise."""


for _command in (ingest, sessions, backfill, gold, report, publish, compact, generate, config):
    program.add_command(_command)


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
    match error:
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
        case PySparkException() | Py4JError():
            _complain(sentence_of(error))
            return EXIT_FAILED
        case _:
            _complain(f"this is a bug: {type(error).__name__}: {error} (pipeline --traceback … shows where)")
            return EXIT_FAILED


def _complain(message: str) -> None:
    for line in message.splitlines() or [""]:
        click.echo(f"pipeline: error: {line}", err=True)
