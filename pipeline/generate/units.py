"""Times of synthetic journals: whole numbers of microseconds, as in the journal itself."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

MILLISECOND: Final = 1_000
SECOND: Final = 1_000 * MILLISECOND
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

NEVER: Final = np.iinfo(np.int64).max // 2
"""Later than anything; half of the largest number, so that a delay can be added to it."""

Times: TypeAlias = NDArray[np.int64]
"""Instants or lengths."""

Numbers: TypeAlias = NDArray[np.int64]
"""Whole numbers of any meaning: rows of tables, counts."""
