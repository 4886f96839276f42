"""``pipeline forget``."""

from __future__ import annotations

import click

from pipeline.cli.options import configured
from pipeline.cli.output import Teller, result
from pipeline.configuration import Configuration
from pipeline.upkeep.erasure import forget as erase


@click.command()
@click.option(
    "--principal",
    metavar="NAME",
    required=True,
    help="Whom to forget, as the tables name it: as it is, or the keyed hash that begins with `hmac:`.",
)
@configured("lake")
def forget(*, configuration: Configuration, principal: str) -> None:
    """Erase a principal from all tables: bronze, silver, gold and what the stream of sessions knows.

    The rows stay, with nobody's name. It needs the lake for itself: end what follows the journal, and stop the timers.
    Run it again after any failure; it finishes what was begun, and twice is as good as once.
    """
    teller = Teller()
    with teller.working("looking for the principal"):
        done = erase(configuration.lake, principal, teller.note)
    result(f"{done.sessions:,} sessions, {done.rows:,} rows in {done.files:,} files")
