"""The command ``gateway``: run a node, look at its configuration, publish and subscribe by hand."""

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code; see ``gateway.cli.program``.

    Args:
        arguments: those of the command line by default.
    """
    # Imported here, so that modules of this package can be used without loading every command.
    from gateway.cli.program import run  # noqa: PLC0415

    return run(arguments)
