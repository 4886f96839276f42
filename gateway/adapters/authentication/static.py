"""Principals with hashed secrets from a file, verified off the event loop.

The file of static users: one ``principal:hash`` a line, as ``gateway hash-secret`` makes them.

What the principal may be taken for and what is vouched for of it may follow, separated by blanks, quoted as in a shell:

```text
alice:scrypt$n=16384,r=8,p=5$…$…  roles=trader,auditor  team=fx  desk="Rates, London"
```

``roles`` is a list separated by commas; every other name is a property. Empty lines and lines that begin with # are
skipped. A principal may hold colons; a hash holds neither colons nor blanks.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
import shlex
import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.adapters.authentication.principals import (
    LONGEST_PRINCIPAL,
    check_properties,
    check_roles,
    is_valid_principal,
)
from gateway.adapters.authentication.secret_hashes import LONGEST_SECRET, CredentialDigests, SecretHash
from gateway.core.wire.errors import GatewayError
from gateway.ports import Credentials, CredentialsRefused, Identity, VerificationPool

LARGEST_FILE: Final = 16 * 1024**2
"""Bytes: a hundred thousand users; beyond, a directory service is the better place for them."""

REMEDY: Final = "make the line with `gateway hash-secret PRINCIPAL`"

ROLES: Final = "roles"
"""The one attribute of a line that is no property."""

_LINE: Final = re.compile(r"(?P<principal>.*?):(?P<hash>scrypt\$\S*)(?:\s+(?P<attributes>\S.*))?")
"""A principal that holds ``:scrypt$`` itself is not worth the trouble."""


class UsersFileError(GatewayError):
    """The file of static users cannot be used; the message names file and line, and never repeats a hash."""


@dataclass(frozen=True, slots=True)
class StaticUser:
    """A line of the file.

    Attributes:
        hashed: the secret.
        identity: who shows it.
    """

    hashed: SecretHash = field(repr=False)
    identity: Identity


def users_line(
    principal: str, hashed: SecretHash, roles: Iterable[str] = (), properties: Mapping[str, str] | None = None
) -> str:
    """Make the line of a user.

    Raises:
        ValueError: nobody can be called *principal* in this file, or a role or property cannot stand in it.
    """
    if not is_valid_principal(principal) or principal.startswith("#"):
        raise ValueError(
            f"a principal has 1 to {LONGEST_PRINCIPAL} visible characters, no blanks at its ends, and no # at its start"
        )
    roles = check_roles(roles)
    properties = check_properties(properties or {})
    if ROLES in properties:
        raise ValueError(f"a property cannot be called {ROLES}")
    given = [f"{ROLES}={','.join(sorted(roles))}"] if roles else []
    given += [f"{name}={value}" for name, value in properties.items()]
    return " ".join([f"{principal}:{hashed}", *map(shlex.quote, given)])


def read_users(file: Path) -> dict[str, StaticUser]:
    """Read all users; blocks while it reads.

    Returns:
        Users by principal, at least one.

    Raises:
        UsersFileError: the file cannot be read or holds a bad line.
    """
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise UsersFileError(f"{file}: the file is larger than {LARGEST_FILE // 1024**2} MiB")
        text = file.read_text("utf-8")
    except OSError as error:
        raise UsersFileError(
            f"{file}: the file of users cannot be read ({error.strerror or error}); name a file that this user may read"
        ) from None
    except UnicodeDecodeError:
        raise UsersFileError(f"{file}: the file is not UTF-8 text; {REMEDY}") from None
    users: dict[str, StaticUser] = {}
    # Not splitlines(): it would also split at characters that a principal cannot hold, hiding them from the check.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        user = _read_line(line.removesuffix("\r"), f"{file}:{number}")
        principal = user.identity.principal
        if users.setdefault(principal, user) is not user:
            raise UsersFileError(
                f"{file}:{number}: {principal!r} stands in an earlier line already; remove one of them"
            )
    if not users:
        raise UsersFileError(f"{file}: the file holds no user, so no client could connect; {REMEDY}")
    return users


def _read_line(line: str, place: str) -> StaticUser:
    if (match := _LINE.fullmatch(line.rstrip())) is not None:
        principal, hashed, attributes = match.group("principal", "hash", "attributes")
    else:
        # Not a line of ours; told what of it is wrong.
        principal, colon, hashed = line.rstrip().rpartition(":")
        attributes = None
        if not colon:
            raise UsersFileError(f"{place}: there is no colon between principal and hash; {REMEDY}")
    if not is_valid_principal(principal):
        raise UsersFileError(
            f"{place}: the principal is empty, too long (more than {LONGEST_PRINCIPAL} characters), or has invisible "
            f"characters or blanks at its ends; {REMEDY}"
        )
    try:
        parsed = SecretHash.parse(hashed)
    except ValueError as error:
        # The principal is no secret, and helps to find the line.
        raise UsersFileError(f"{place}: {principal!r}: {error}; {REMEDY}") from None
    try:
        roles, properties = _read_attributes(attributes or "")
    except ValueError as error:
        raise UsersFileError(
            f"{place}: {principal!r}: {error}; write them behind the hash as roles=one,two name=value"
        ) from None
    return StaticUser(parsed, Identity(principal=principal, roles=roles, properties=properties))


def _read_attributes(text: str) -> tuple[frozenset[str], dict[str, str]]:
    """Read what follows the hash.

    Raises:
        ValueError: it is wrong; the message does not repeat a value.
    """
    given: dict[str, str] = {}
    try:
        words = shlex.split(text, comments=False)
    except ValueError:
        raise ValueError("a quotation mark has no partner") from None
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError("there is a word without =")
        if name in given:
            raise ValueError(f"{name!r} is given twice")
        given[name] = value
    roles = given.pop(ROLES, None)
    return check_roles([] if roles is None else roles.split(",")), check_properties(given)


PLACES: Final = 2
"""Verifications at the same time. Each takes a core (the interpreter's lock is not held) and some MiB."""

NICENESS: Final = 5
"""By which threads that hash stand behind the event loop where processor time is short: they get a third of its share
each, so that a node with few cores keeps its lease and answers its checks while its places are all taken (P20)."""

REFUSED_REMEMBERED: Final = 4096
"""Credentials that were not accepted and are remembered, those that were shown last: some 1 MB. Programs with an old
secret show it again and again; and behind this authenticator another one may know whom it does not."""

_BACKGROUND: Final = "authentication"


class StaticAuthenticator:
    """Principals and hashed secrets stand in a file; implements ``gateway.ports.Authenticator``.

    Somebody who tries names learns nothing from the time it takes: a principal that does not exist waits as long as one
    that does, and costs the same hash where nobody else waits for one. What came of it is remembered, alike for both,
    as a keyed digest under a random key that never leaves the process, and told again without a hash; ``reload``
    forgets it, but for good secrets whose line has not changed.
    """

    def __init__(self, file: Path, verifications: VerificationPool) -> None:
        """Read *file*; blocks while it reads.

        Args:
            file: lines that ``gateway hash-secret`` makes.
            verifications: the places for hashing, which this authenticator has for itself.

        Raises:
            UsersFileError: the file cannot be used; the message names the line.
        """
        self._file = file
        self._verifications = verifications
        self._users: Mapping[str, StaticUser] = {}
        self._nobody: SecretHash
        # By principal, so that it cannot grow beyond the file, and nobody's verdict is forgotten for somebody else's.
        self._verified: dict[str, bytes] = {}
        self._refused: OrderedDict[bytes, None] = OrderedDict()
        self._digests = CredentialDigests()
        self._threads = ThreadPoolExecutor(
            verifications.places, thread_name_prefix=_BACKGROUND, initializer=_stand_behind_the_loop
        )
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
        # Whose line is as it was, is not verified anew: else everybody would have to be after a change of one line.
        self._verified = {
            principal: digest
            for principal, digest in self._verified.items()
            if principal in users and users[principal].hashed == self._users[principal].hashed
        }
        self._users = users
        self._nobody = _unknown_user(users)
        self._refused.clear()
        return len(users)

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        """Tell who it is if the secret is the principal's own. The slow part runs in a thread, when it is its turn.

        Returns:
            Who it is; None if the file does not hold the principal, or there is no secret of a possible length.

        Raises:
            CredentialsRefused: the file holds the principal, and the secret is not its own.
            VerificationRefused: too many secrets are verified at the moment.
        """
        principal, secret = credentials.principal, credentials.secret
        # Passed over alike for everybody, so that nothing can be learnt from how fast it is. Who names no principal, as
        # those who show a token, is nobody's user whatever the file holds.
        if secret is None or len(secret) > LONGEST_SECRET or not is_valid_principal(principal):
            return None
        user = self._users.get(principal)
        hashed = self._nobody if user is None else user.hashed
        # The salt ties what is remembered to one line of one file.
        digest = self._digests.of(principal, secret, hashed.salt)
        if user is not None and self._is_remembered(principal, digest):
            return user.identity
        if digest in self._refused:
            self._refused.move_to_end(digest)
            return _not_accepted(exists=user is not None)
        if user is None:
            await self._verifications.pretend(credentials, digest, lambda: self._matches(secret, hashed))
            self._remember_refused(digest)
            return _not_accepted(exists=False)
        return await self._verifications.run(
            credentials, digest, lambda: self._verify(principal, secret, hashed, digest)
        )

    async def _verify(self, principal: str, secret: str, hashed: SecretHash, digest: bytes) -> Identity:
        """Hash a secret, and remember it if it is the right one."""
        matches = await self._matches(secret, hashed)
        # A reload during the verification wins: what it removed is not admitted, and not remembered.
        user = self._users.get(principal)
        if not matches or user is None or user.hashed != hashed:
            self._remember_refused(digest)
            raise CredentialsRefused(_WRONG)
        self._verified[principal] = digest
        return user.identity

    async def _matches(self, secret: str, hashed: SecretHash) -> bool:
        return await asyncio.get_running_loop().run_in_executor(self._threads, hashed.matches, secret)

    def _remember_refused(self, digest: bytes) -> None:
        """Remember a no; under a salt that a reload has taken away, it is never looked for."""
        self._refused[digest] = None
        if len(self._refused) > REFUSED_REMEMBERED:
            self._refused.popitem(last=False)

    def find(self, principal: str) -> Identity | None:
        """Tell what the file vouches for of a principal; see ``gateway.ports.Directory``."""
        user = self._users.get(principal)
        return None if user is None else user.identity

    def close(self) -> None:
        """Let the threads end; callers that still wait are cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _is_remembered(self, principal: str, digest: bytes) -> bool:
        known = self._verified.get(principal)
        return known is not None and hmac.compare_digest(known, digest)


_WRONG: Final = "the secret is not the one in the file of users"


def _not_accepted(*, exists: bool) -> Identity | None:
    """Leave a principal that the file does not hold to others, and refuse one that it holds for good."""
    if exists:
        raise CredentialsRefused(_WRONG)
    return None


def _stand_behind_the_loop() -> None:
    """Make this thread less urgent than the others of the process; elsewhere than on Linux, all of it would be."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.nice(0) + NICENESS)


def _unknown_user(users: Mapping[str, StaticUser]) -> SecretHash:
    """The hash that stands for principals that do not exist: as costly as most, and matched by no secret."""
    (parameters, _), *_ = Counter(user.hashed.parameters for user in users.values()).most_common(1)
    return SecretHash(parameters, os.urandom(16), hmac.digest(os.urandom(32), b"nobody", hashlib.sha256))
