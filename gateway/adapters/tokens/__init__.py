"""Session tokens: small signed texts that prove a session is yours (P8)."""

from gateway.adapters.tokens.key_files import KeyFiles, KeyFilesError, KeyUse, ListedKey, when
from gateway.adapters.tokens.signer import (
    LEAST_KEY_BYTES,
    LONGEST_TOKEN,
    FollowedKeys,
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
