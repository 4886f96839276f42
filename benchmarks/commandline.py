"""Names that somebody chose on a command line, and the limits and signals that all commands here set alike."""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Collection, Mapping
from typing import NoReturn

import click


def chosen_names(known: Mapping[str, object], text: str | None, *, default: Collection[str] | None = None) -> list[str]:
    """Split a list of names; *default* if there is none, or all if that is None.

    Raises:
        click.BadParameter: one is not known.
    """
    chosen = list(dict.fromkeys(each.strip() for each in (text or "").split(",") if each.strip()))
    chosen = chosen or list(known if default is None else default)
    if unknown := [each for each in chosen if each not in known]:
        raise click.BadParameter(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    return chosen


def prepare_process() -> None:
    """Allow many connections, and stop everything that was started if this process is asked to end.

    10,000 connections need as many descriptors at either end; the limit is raised as far as this user may. SIGTERM
    becomes an exception, as SIGINT is already, so that every ``with`` on the way out does its work.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGTERM, _stop)


def _stop(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)
