"""The file of static users: one ``principal:hash`` a line, as ``gateway hash-secret`` makes them.

What the principal may be taken for and what is vouched for of it may follow, separated by blanks, quoted as in a shell:

```text
alice:scrypt$n=16384,r=8,p=5$…$…  roles=trader,auditor  team=fx  desk="Rates, London"
```

``roles`` is a list separated by commas; every other name is a property. Empty lines and lines that begin with # are
skipped. A principal may hold colons; a hash holds neither colons nor blanks.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.adapters.authentication.attributes import check_properties, check_roles
from gateway.adapters.authentication.principals import LONGEST_PRINCIPAL, is_valid_principal
from gateway.adapters.authentication.secret_hashes import SecretHash
from gateway.core.wire.errors import GatewayError
from gateway.ports import Identity

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
        raise UsersFileError(f"{file}: the file holds no user, so nobody could connect; {REMEDY}")
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
