"""``pipeline config``."""

from __future__ import annotations

import click

from pipeline.cli.options import configured
from pipeline.cli.output import result
from pipeline.configuration import GROUPS, SETTINGS, Configuration


@click.command()
@configured(*SETTINGS)
def config(*, configuration: Configuration) -> None:
    """Print every setting with its value and meaning, as the other commands would have it.

    Exit code 2 if the configuration cannot be used, with everything that is wrong with it.
    """
    for group in GROUPS:
        result(group.title)
        for each in group.settings:
            result(f"  {each.name} = {each.show(getattr(configuration, each.name))}")
            result(f"      {each.declared.meaning}")
