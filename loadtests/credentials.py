"""Who users are, and by what proof.

From the environment variables LOADTEST_PRINCIPAL and LOADTEST_SECRET: not from the command line, where everybody on the
machine could read them, and not into any name, URL or log.
"""

from __future__ import annotations

import os
from typing import Final

DEFAULT_PRINCIPAL: Final = "load"


def principal() -> str:
    """Who they are."""
    return os.environ.get("LOADTEST_PRINCIPAL", DEFAULT_PRINCIPAL)


def secret() -> str | None:
    """Their proof, if they have one."""
    return os.environ.get("LOADTEST_SECRET")
