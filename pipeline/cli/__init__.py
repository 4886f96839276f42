"""The command ``pipeline``: take the journal in, make tables of it, tell what happened."""

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code; see ``pipeline.cli.program``.

    Args:
        arguments: those of the command line by default.
    """
    # Imported here, so that modules of this package can be used without loading the program.
    from pipeline.cli.program import run  # noqa: PLC0415

    return run(arguments)
