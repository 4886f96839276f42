"""``python -m scripts.site``: what ``make docs`` runs. Makes the site, and fails at whatever a reader would trip over.

Exit status: 0 done; 1 a page has a link that leads nowhere, or another fault that Sphinx names; 2 asked for wrongly.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click
from sphinx.cmd.build import main as sphinx

from scripts.site import check

_ROOT: Final = Path(__file__).resolve().parents[2]
_KNOWN: Final = "doctrees"
"""Folder beside the site, in which Sphinx keeps what it has read, so that the next time it reads only what is new."""


def build(folder: Path, *, jobs: str = "auto") -> int:
    """Make the site.

    Args:
        folder: gets the pages.
        jobs: how many processes; ``auto`` is one a core.

    Returns:
        The exit code of Sphinx; not 0 also if there was a warning.
    """
    where = ("-c", str(Path(__file__).parent), "-d", str(folder.parent / f"{folder.name}-{_KNOWN}"))
    return sphinx(["-b", "html", "-W", "--keep-going", "-q", "-j", jobs, *where, str(_ROOT), str(folder)])


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def main(folder: Path) -> None:
    """Make the documentation site in FOLDER."""
    code = build(folder)
    if code == 0:
        problems = check.problems(folder)
        for each in problems:
            click.echo(f"error: {each}", err=True)
        code = 1 if problems else 0
    if code == 0:
        click.echo(f"Open {(folder / 'index.html').resolve().as_uri()}")
    sys.exit(code)


if __name__ == "__main__":
    main()
