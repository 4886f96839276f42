"""What credentials are remembered as: digests that are worth nothing outside of this process."""

from __future__ import annotations

import hashlib
import os
from typing import Final

DIGEST_BYTES: Final = 32
"""So that no two credentials are ever mistaken for one another."""


class CredentialDigests:
    """Makes digests under a random key that never leaves the process: nobody can try out secrets on them."""

    def __init__(self) -> None:
        self._key = os.urandom(hashlib.blake2b.MAX_KEY_SIZE)

    def of(self, *parts: str | bytes) -> bytes:
        """Digest credentials, part by part: where one ends and the next begins counts, too."""
        state = hashlib.blake2b(key=self._key, digest_size=DIGEST_BYTES)
        for part in parts:
            # A lone surrogate is in nobody's secret, but must not raise either.
            data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            state.update(len(data).to_bytes(4) + data)
        return state.digest()
