"""Tokens of administrators, and the lines by which the file of administrators (``admin_tokens_file``) knows them.

A token is 256 random bits, so its hash need not be slow: nobody can try out what is not guessable. SHA-256 it is.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Final

PREFIX: Final = "gwadm_"
"""Begins every token, so that scanners for leaked secrets, and redaction, can tell what it is."""

TOKEN_BYTES: Final = 32
"""Random bytes of a token."""

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}", re.ASCII)
"""What a token may be called."""

ROLE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
"""What a role may be called."""


def new_token() -> str:
    """Make a token; a secret that is shown once."""
    return PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def tokens_line(name: str, roles: frozenset[str], token: str) -> str:
    """Make the line of a token for the file.

    Raises:
        ValueError: the name or a role cannot be used.
    """
    if NAME.fullmatch(name) is None:
        raise ValueError("a name has up to 64 letters, digits and _ . @ -, and begins with a letter or digit")
    if not roles:
        raise ValueError("a token without a role may do nothing; name at least one")
    for role in roles:
        if ROLE.fullmatch(role) is None:
            raise ValueError("a role has up to 64 letters, digits and _ . -, and begins with a letter or digit")
    return f"{name}:{','.join(sorted(roles))}:sha256${digest_of(token).hex()}"


def digest_of(token: str) -> bytes:
    """Hash a token, whatever text it is."""
    # A lone surrogate in a token is nobody's token, but must not raise either.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
