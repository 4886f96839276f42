"""Principals with hashed secrets from a file, verified off the event loop."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
from collections import Counter, OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from gateway.adapters.authentication.credential_digests import CredentialDigests
from gateway.adapters.authentication.secret_hashes import LONGEST_SECRET, SecretHash
from gateway.adapters.authentication.users_file import StaticUser, read_users
from gateway.ports import Credentials, CredentialsRefused, Identity

DEFAULT_CONCURRENCY: Final = 2
"""Verifications at the same time. Each takes a core (the interpreter's lock is not held) and some MiB."""

REMEMBERED: Final = 4096
"""Verified credentials that are remembered, so that a storm of hellos costs one slow hash per user, not per client."""

_BACKGROUND: Final = "authentication"


class StaticAuthenticator:
    """Principals and hashed secrets stand in a file; implements ``gateway.ports.Authenticator``.

    Somebody who tries names learns nothing from the time it takes: a principal that does not exist costs the same
    hash as one that does. What was verified is remembered as a keyed digest under a random key that never leaves the
    process; ``reload`` forgets all of it.
    """

    def __init__(self, file: Path, *, concurrency: int = DEFAULT_CONCURRENCY) -> None:
        """Read *file*; blocks while it reads.

        Args:
            file: lines that ``gateway hash-secret`` makes.
            concurrency: verifications that may run at the same time.

        Raises:
            UsersFileError: the file cannot be used; the message names the line.
        """
        self._file = file
        self._users: Mapping[str, StaticUser] = {}
        self._nobody: SecretHash
        self._verified: OrderedDict[bytes, None] = OrderedDict()
        self._digests = CredentialDigests()
        self._slots = asyncio.Semaphore(concurrency)
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix=_BACKGROUND)
        self.reload()

    def __len__(self) -> int:
        return len(self._users)

    def reload(self) -> int:
        """Read the file again, for SIGHUP; blocks while it reads. Sessions that exist are not touched.

        Returns:
            The number of users.

        Raises:
            UsersFileError: the file cannot be used; the users that were read before stay in force.
        """
        users = read_users(self._file)
        self._users = users
        self._nobody = _unknown_user(users)
        self._verified.clear()
        return len(users)

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        """Tell who it is if the secret is the principal's own. The slow part runs in a thread.

        At most ``concurrency`` verifications run; further callers wait their turn, and leave it when cancelled.

        Returns:
            Who it is; None if the file does not hold the principal, or there is no secret of a possible length.

        Raises:
            CredentialsRefused: the file holds the principal, and the secret is not its own.
        """
        principal, secret = credentials.principal, credentials.secret
        # Passed over alike for everybody, so that nothing can be learnt from how fast it is.
        if secret is None or len(secret) > LONGEST_SECRET:
            return None
        user = self._users.get(principal)
        hashed = self._nobody if user is None else user.hashed
        # The salt ties what is remembered to one line of one file.
        digest = self._digests.of(principal, secret, hashed.salt)
        if user is not None and self._is_remembered(digest):
            return user.identity
        async with self._slots:
            # Another client of the same user may have been verified while this one waited.
            if user is not None and self._is_remembered(digest):
                return user.identity
            loop = asyncio.get_running_loop()
            matches = await loop.run_in_executor(self._threads, hashed.matches, secret)
        if user is None:
            return None
        # A reload during the verification wins: what it removed is not let in, and not remembered.
        user = self._users.get(principal)
        if not matches or user is None or user.hashed != hashed:
            raise CredentialsRefused("the secret is not the one in the file of users")
        self._verified[digest] = None
        while len(self._verified) > REMEMBERED:
            self._verified.popitem(last=False)
        return user.identity

    def find(self, principal: str) -> Identity | None:
        """Tell what the file vouches for of a principal; see ``gateway.ports.Directory``."""
        user = self._users.get(principal)
        return None if user is None else user.identity

    def close(self) -> None:
        """Let the threads end; callers that still wait are cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _is_remembered(self, digest: bytes) -> bool:
        if digest not in self._verified:
            return False
        self._verified.move_to_end(digest)
        return True


def _unknown_user(users: Mapping[str, StaticUser]) -> SecretHash:
    """The hash that stands for principals that do not exist: as costly as most, and matched by no secret."""
    (parameters, _), *_ = Counter(user.hashed.parameters for user in users.values()).most_common(1)
    return SecretHash(parameters, os.urandom(16), hmac.digest(os.urandom(32), b"nobody", hashlib.sha256))
