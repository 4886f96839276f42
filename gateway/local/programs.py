"""Where the programs are that a stack is made of."""

from __future__ import annotations

import shutil
from typing import Final

_EXTRA_PATH: Final = "/usr/local/sbin:/usr/sbin:/sbin:/opt/homebrew/bin:/usr/local/bin"
"""Where packages put servers, though it may not be on a user's PATH."""


class ProgramMissing(Exception):
    """redis-server or haproxy is not installed; the message says what to do."""


def find_program(name: str) -> str:
    """Find a server program, also where a user's PATH does not lead.

    Raises:
        ProgramMissing: it is not installed.
    """
    path = shutil.which(name) or shutil.which(name, path=_EXTRA_PATH)
    if path is None:
        raise ProgramMissing(
            f"{name} is not installed; `make demo`, `make observe` and `make test` install what they need by apt or "
            "brew, elsewhere install Redis 7.0, HAProxy 2.6 and Prometheus 2.42 or newer by hand"
        )
    return path
