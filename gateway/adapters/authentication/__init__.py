"""Who a client is: the ways of authentication, and what they share.

``static`` (a file of users), ``jwt`` (tokens of an identity provider), ``http`` (a callback that the operator runs),
``anonymous`` (believes everybody, for development), and ``chain``, which asks several of them one after the other.
"""

from __future__ import annotations

from gateway.adapters.authentication.callback import CallbackAuthenticator
from gateway.adapters.authentication.chain import AnonymousAuthenticator, ChainAuthenticator
from gateway.adapters.authentication.claims import ClaimRules, find_claim, read_claims
from gateway.adapters.authentication.json_web_tokens import LONGEST_JWT, JwtAuthenticator
from gateway.adapters.authentication.key_sets import (
    Algorithm,
    KeysError,
    KeySet,
    read_jwks,
    read_jwks_file,
    read_pem_file,
    read_secret_file,
)
from gateway.adapters.authentication.key_sources import FileKeys, KeySource, UrlKeys
from gateway.adapters.authentication.principals import LONGEST_PRINCIPAL, is_valid_principal
from gateway.adapters.authentication.secret_hashes import LONGEST_SECRET, HashParameters, SecretHash, hash_secret
from gateway.adapters.authentication.static import (
    PLACES,
    StaticAuthenticator,
    StaticUser,
    UsersFileError,
    read_users,
    users_line,
)

__all__ = [
    "LONGEST_JWT",
    "LONGEST_PRINCIPAL",
    "LONGEST_SECRET",
    "PLACES",
    "Algorithm",
    "AnonymousAuthenticator",
    "CallbackAuthenticator",
    "ChainAuthenticator",
    "ClaimRules",
    "FileKeys",
    "HashParameters",
    "JwtAuthenticator",
    "KeySet",
    "KeySource",
    "KeysError",
    "SecretHash",
    "StaticAuthenticator",
    "StaticUser",
    "UrlKeys",
    "UsersFileError",
    "find_claim",
    "hash_secret",
    "is_valid_principal",
    "read_claims",
    "read_jwks",
    "read_jwks_file",
    "read_pem_file",
    "read_secret_file",
    "read_users",
    "users_line",
]
