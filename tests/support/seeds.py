"""Randomness of tests that can be repeated: one seed per run, named in what a test reports."""

from __future__ import annotations

import os
from random import Random
from typing import Final

SEED: Final = int(os.environ.get("TEST_SEED", "1"))
"""Of all randomness in this run. Give another one to try other moments: ``TEST_SEED=7 pytest …``."""


def seeded(purpose: str) -> Random:
    """Return random numbers that depend on the seed of the run and on what they are for."""
    return Random(f"{SEED} {purpose}")
