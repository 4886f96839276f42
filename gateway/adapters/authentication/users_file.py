"""The file of static users: one ``principal:hash`` a line, as ``gateway hash-secret`` makes them.

Empty lines and lines that begin with # are skipped. A principal may hold colons; a hash never does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gateway.adapters.authentication.principals import LONGEST_PRINCIPAL, is_valid_principal
from gateway.adapters.authentication.secret_hashes import SecretHash
from gateway.core.errors import GatewayError

LARGEST_FILE: Final = 16 * 1024**2
"""Bytes: a hundred thousand users; beyond, a directory service is the better place for them."""

REMEDY: Final = "make the line with `gateway hash-secret PRINCIPAL`"


class UsersFileError(GatewayError):
    """The file of static users cannot be used; the message names file and line, and never repeats a hash."""


def users_line(principal: str, hashed: SecretHash) -> str:
    """Make the line of a user.

    Raises:
        ValueError: nobody can be called *principal* in this file.
    """
    if not is_valid_principal(principal) or principal.startswith("#"):
        raise ValueError(
            f"a principal has 1 to {LONGEST_PRINCIPAL} visible characters, no blanks at its ends, and no # at its start"
        )
    return f"{principal}:{hashed}"


def read_users(file: Path) -> dict[str, SecretHash]:
    """Read all users; blocks while it reads.

    Returns:
        Hashes by principal, at least one.

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
    users: dict[str, SecretHash] = {}
    # Not splitlines(): it would also split at characters that a principal cannot hold, hiding them from the check.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        principal, hashed = _read_line(line.removesuffix("\r"), f"{file}:{number}")
        if users.setdefault(principal, hashed) is not hashed:
            raise UsersFileError(
                f"{file}:{number}: {principal!r} stands in an earlier line already; remove one of them"
            )
    if not users:
        raise UsersFileError(f"{file}: the file holds no user, so nobody could connect; {REMEDY}")
    return users


def _read_line(line: str, place: str) -> tuple[str, SecretHash]:
    principal, colon, hashed = line.rstrip().rpartition(":")
    if not colon:
        raise UsersFileError(f"{place}: there is no colon between principal and hash; {REMEDY}")
    if not is_valid_principal(principal):
        raise UsersFileError(
            f"{place}: the principal is empty, too long (more than {LONGEST_PRINCIPAL} characters), or has invisible "
            f"characters or blanks at its ends; {REMEDY}"
        )
    try:
        return principal, SecretHash.parse(hashed)
    except ValueError as error:
        # The principal is no secret, and helps to find the line.
        raise UsersFileError(f"{place}: {principal!r}: {error}; {REMEDY}") from None
