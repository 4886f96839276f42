"""How jobs tell what they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Tell: TypeAlias = Callable[[str], None]
"""Tells how far a job is, in a line for people."""
