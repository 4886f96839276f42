"""The program: its commands, and how errors are reported.

Whatever happens, a user gets one line per problem on standard error, ``gateway: error: …``, and an exit code:
0 done, 1 it failed while running, 2 it was asked for wrongly (a flag, a file, a value), 3 it is begun, and whether it
comes about is not known yet.
"""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Final

import click

from gateway import __version__
from gateway.lazy_commands import LazyCommand, LazyGroup

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
"""As shells report a program that was ended by Ctrl-C."""

_COMMANDS: Final = {
    "serve": LazyCommand("gateway.cli.serve", "serve", "Run a node until it is stopped."),
    "check-config": LazyCommand(
        "gateway.cli.configuration", "check_config", "Check the configuration without starting anything."
    ),
    "config": LazyCommand(
        "gateway.cli.configuration", "config", "Print every setting with its default, unit and meaning."
    ),
    "pub": LazyCommand(
        "gateway.cli.messages",
        "pub",
        "Publish the value JSON (- reads it from standard input) to TOPIC, exactly once.",
    ),
    "sub": LazyCommand(
        "gateway.cli.messages", "sub", "Print the updates of all topics that SELECTOR matches, until Ctrl-C."
    ),
    "token": LazyCommand("gateway.cli.identity", "token", "Look at session tokens."),
    "keys": LazyCommand(
        "gateway.cli.keys",
        "keys",
        "Make, list, promote and retire the keys of session tokens; make the certificates of links.",
    ),
    "policy": LazyCommand("gateway.cli.authorisation", "policy", "Check who may do what."),
    "hash-secret": LazyCommand(
        "gateway.cli.identity", "hash_secret_command", "Make the line of PRINCIPAL for the file of static users."
    ),
    "admin": LazyCommand("gateway.cli.admin", "admin", "Look at a cluster and steer it, through any of its nodes."),
}


@click.group(
    cls=LazyGroup,
    lazy=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="gateway")
@click.option("--traceback", is_flag=True, help="Show where an unexpected error came from.")
def program(*, traceback: bool) -> None:
    """A WebSocket gateway whose sessions outlive their socket, their node and the deploy."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        arguments: those of the command line by default.

    Returns:
        The exit code; nothing is raised.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        result = program.main(list(arguments), prog_name="gateway", standalone_mode=False)
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
    """Report *error* to the user; returns the exit code."""
    # Imported here: neither --help nor --version needs them.
    from gateway.core.wire.errors import GatewayError  # noqa: PLC0415
    from gateway.settings.errors import ConfigurationError  # noqa: PLC0415

    match error:
        case click.exceptions.NoArgsIsHelpError():
            # Whoever calls a group without a command is told what there is, and has done nothing wrong.
            click.echo(error.format_message(), err=True)
            return EXIT_USAGE
        case ConfigurationError():
            for problem in error.problems:
                _complain(str(problem))
            return EXIT_USAGE
        case click.UsageError():
            _complain(_sentence(error))
            return EXIT_USAGE
        case click.ClickException():
            _complain(error.format_message())
            return error.exit_code
        case GatewayError() | OSError():
            _complain(str(error) or type(error).__name__)
            return EXIT_FAILED
        case _:
            _complain(f"this is a bug: {type(error).__name__}: {error} (gateway --traceback … shows where)")
            return EXIT_FAILED


def _sentence(error: click.UsageError) -> str:
    """The error with the command whose help would have prevented it."""
    command = error.ctx.command_path if error.ctx is not None else "gateway"
    return f"{error.format_message().rstrip('.')}; see `{command} --help`"


def _complain(message: str) -> None:
    for line in message.splitlines() or [""]:
        click.echo(f"gateway: error: {line}", err=True)
