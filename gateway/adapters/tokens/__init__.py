"""Session tokens: small signed texts that prove a session is yours (P8)."""

from gateway.adapters.tokens.followed_keys import FollowedKeys
from gateway.adapters.tokens.key_files import KeyFiles, KeyFilesError, KeyUse, ListedKey
from gateway.adapters.tokens.key_text import when
from gateway.adapters.tokens.signer import (
    LEAST_KEY_BYTES,
    LONGEST_TOKEN,
    ItsdangerousTokenSigner,
    KeyState,
    ReadToken,
    key_id,
    read_unverified,
)

__all__ = [
    "LEAST_KEY_BYTES",
    "LONGEST_TOKEN",
    "FollowedKeys",
    "ItsdangerousTokenSigner",
    "KeyFiles",
    "KeyFilesError",
    "KeyState",
    "KeyUse",
    "ListedKey",
    "ReadToken",
    "key_id",
    "read_unverified",
    "when",
]
