"""Idempotency keys: under which name a call does what it asks for, so that the grid executes it once (P5)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from hashlib import sha256
from http import HTTPStatus
from types import MappingProxyType
from typing import Final

from gateway.app.calls.callers import Caller
from gateway.app.context import Context
from gateway.core.types import Epoch, SessionId
from gateway.ports import CallRefused, Ownership

KEYED_NAME: Final = "$call-"
"""Begins the name under which a call with a key publishes and sends: the same on every node."""

KEYED_PACKETS: Final = 16
"""Packets that a topic or a message counts as in a call with a key, in place of one: the grid remembers what was done
under the key for an hour, some 150 bytes for each."""

REPEAT: Final[Mapping[bool, str]] = MappingProxyType(
    {True: "repeat the call with the same key", False: "give a call an Idempotency-Key to repeat it safely"}
)
"""What to do if nobody knows what became of a call: with a key, and without."""

_NAME_BYTES: Final = 16
"""Of the digest in a name: as many as a session id has."""


class IdempotencyKeys:
    """Binds keys to what is asked under them.

    Args:
        context: of the node.
    """

    def __init__(self, context: Context) -> None:
        self._me = context.me
        self._store = context.grid.call_keys

    async def bind(self, caller: Caller, key: str, body: bytes) -> Ownership:
        """Bind a key of a principal to a body, unless it is bound already.

        Args:
            caller: whose key it is.
            key: as it was sent.
            body: of the call.

        Returns:
            By which right the call is executed: receipts of the grid under this name make that happen once.

        Raises:
            CallRefused: the key is bound to another body.
            GridUnavailable: it may be bound.
        """
        name = _digest(caller.principal.encode(), key.encode())
        publisher = SessionId(KEYED_NAME + base64.urlsafe_b64encode(name).decode().rstrip("="))
        fingerprint = base64.urlsafe_b64encode(_digest(body))
        if await self._store.bind(publisher, fingerprint) != fingerprint:
            raise CallRefused(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "key_used",
                "another body came with this Idempotency-Key within the last hour; nothing was done. Repeat a "
                "call with the very same body, and give each other call a key of its own",
            )
        return Ownership(publisher, self._me, Epoch(1))


def _digest(*parts: bytes) -> bytes:
    """Digest parts so that no two lists of them have the same digest."""
    digest = sha256()
    for each in parts:
        digest.update(b"%d:" % len(each))
        digest.update(each)
    return digest.digest()[:_NAME_BYTES]
