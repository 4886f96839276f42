"""Idempotency keys of calls in the grid: implements ``gateway.ports.CallKeyStore``."""

from __future__ import annotations

from typing import Final

from gateway.adapters.redis.grid_connection import GridConnection
from gateway.adapters.redis.keys import Keys
from gateway.core.types import SessionId
from gateway.ports import CALL_KEY_MARGIN, CALL_KEY_SECONDS

_LIFE_MS: Final = round((CALL_KEY_SECONDS + CALL_KEY_MARGIN) * 1000)


class RedisCallKeys:
    """What was asked under each key.

    Args:
        grid: for commands.
        keys: names of all keys.
    """

    def __init__(self, grid: GridConnection, keys: Keys) -> None:
        self._batcher = grid.batcher
        self._keys = keys

    async def bind(self, publisher: SessionId, fingerprint: bytes) -> bytes:
        """See ``CallKeyStore.bind``."""
        key = self._keys.call_key(publisher)
        _, _, bound = await self._batcher.call_all(
            [("SET", key, fingerprint, "NX", "PX", _LIFE_MS), ("PEXPIRE", key, _LIFE_MS), ("GET", key)]
        )
        # Gone within this very moment, as it may be if somebody deletes it.
        return fingerprint if bound is None else bytes(bound)
