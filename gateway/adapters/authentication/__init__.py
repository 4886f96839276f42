"""Who a client is: the two ways of authentication that exist for now."""

from __future__ import annotations

from gateway.adapters.authentication.anonymous import AnonymousAuthenticator
from gateway.adapters.authentication.principals import LONGEST_PRINCIPAL, is_valid_principal
from gateway.adapters.authentication.secret_hashes import LONGEST_SECRET, HashParameters, SecretHash, hash_secret
from gateway.adapters.authentication.static import StaticAuthenticator
from gateway.adapters.authentication.users_file import UsersFileError, read_users, users_line

__all__ = [
    "LONGEST_PRINCIPAL",
    "LONGEST_SECRET",
    "AnonymousAuthenticator",
    "HashParameters",
    "SecretHash",
    "StaticAuthenticator",
    "UsersFileError",
    "hash_secret",
    "is_valid_principal",
    "read_users",
    "users_line",
]
