"""``python -m scripts.reference FOLDER``."""

from __future__ import annotations

from pathlib import Path

import click

from scripts.reference.pages import write_pages


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def program(folder: Path) -> None:
    """Write all pages into FOLDER, which is docs/reference."""
    write_pages(folder)


if __name__ == "__main__":
    program(prog_name="python -m scripts.reference")
