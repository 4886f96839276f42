"""The version of the journal's schema."""

from __future__ import annotations

from typing import Final

VERSION: Final = 1
"""Written into every record. It grows when fields are added; a field is never given another meaning or kind, and none
is removed, so that whoever reads a newer journal than he knows misses what was added and nothing else."""
