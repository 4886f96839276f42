"""How principals stand in the journal: as they are, or as keyed hashes."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Final, TypeAlias

from gateway.core.journal.fields import HASHED

Named: TypeAlias = Callable[[str], str]
"""Turns a principal into what the journal says of it."""

_KNOWN: Final = 16_384
"""Principals whose hash is remembered: some 4 MB."""


def plainly(principal: str) -> str:
    """Name a principal as it is."""
    return principal


def hashed_with(key: bytes) -> Named:
    """Name principals by HMAC-SHA256: whoever does not hold *key* can neither read nor guess them.

    The same principal has the same name wherever the same key is used, so that its sessions can be counted.
    """

    def named(principal: str) -> str:
        return HASHED + hmac.new(key, principal.encode("utf-8", "surrogatepass"), sha256).hexdigest()

    return lru_cache(_KNOWN)(named)
