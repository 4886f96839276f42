"""Options of commands that connect as a client; the same wherever there is such a command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from gateway.core.client.urls import check_urls

DEFAULT_URL: Final = "ws://127.0.0.1:8101/v1/connect"
"""Where ``gateway serve`` listens if nobody says otherwise."""

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def _several(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    """Read URLs with commas between them."""
    several = tuple(url.strip() for url in value.split(",") if url.strip())
    if not several:
        raise click.BadParameter("there is none")
    try:
        return check_urls(several)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def client_options(
    *, principal: str, who: str = "Who to be.", timeout: float, patience: str
) -> Callable[[FunctionT], FunctionT]:
    """Give a command ``--url``, ``--principal`` and ``--timeout``.

    The command gets the keywords ``urls`` (a tuple of at least one), ``principal`` and ``timeout`` (seconds). The
    principal's secret has no flag, because other users of the machine could see it; it comes from ``GATEWAY_SECRET``.

    Args:
        principal: the default.
        who: help for ``--principal``.
        timeout: seconds; the default.
        patience: help for ``--timeout``.
    """
    options = (
        click.option(
            "--url",
            "urls",
            metavar="URL",
            callback=_several,
            envvar="GATEWAY_URL",
            show_envvar=True,
            default=DEFAULT_URL,
            show_default=True,
            help="A node or a load balancer; several, separated by commas, are tried in turn.",
        ),
        click.option(
            "--principal",
            envvar="GATEWAY_PRINCIPAL",
            show_envvar=True,
            default=principal,
            show_default=True,
            help=who,
        ),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0.1),
            default=timeout,
            show_default=True,
            metavar="SECONDS",
            help=patience,
        ),
    )

    def decorate(function: FunctionT) -> FunctionT:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate
