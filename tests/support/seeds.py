"""Randomness of tests that can be repeated: one seed per run, named in what a test reports."""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import pytest

SEED: Final = int(os.environ.get("TEST_SEED", "1"))
"""Of all randomness in this run. Give another one to try other moments: ``TEST_SEED=7 pytest …``."""


def seeded(purpose: str) -> Random:
    """Return random numbers that depend on the seed of the run and on what they are for."""
    return Random(f"{SEED} {purpose}")


def seeds(count: int) -> Sequence[Any]:
    """Return parameters for a test that repeats itself with other randomness: one after each change, all at length.

    Args:
        count: how many seeds there are, from 0 on.
    """
    return [0, *(pytest.param(each, marks=pytest.mark.thorough) for each in range(1, count))]
