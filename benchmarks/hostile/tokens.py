"""Tokens for the users of a hostile stack, and the settings of a node that believes them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "gateway"
LIFE: Final = 24 * 3600
"""Seconds for which a token is good: longer than any run."""

_PUBLIC_EXPONENT: Final = 65537
_KEY_BITS: Final = 2048


def issue(folder: Path, principals: Iterable[str]) -> tuple[str, dict[str, str]]:
    """Make a key, and a token for each principal.

    Args:
        folder: for the files of the node.
        principals: who gets one.

    Returns:
        The setting ``auth``, and tokens by principal.
    """
    key = rsa.generate_private_key(_PUBLIC_EXPONENT, _KEY_BITS)
    public = folder / "issuer.pem"
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    settings = folder / "tokens.toml"
    settings.write_text(
        f'issuer = "{ISSUER}"\naudience = "{AUDIENCE}"\nalgorithms = ["RS256"]\nkey_file = "{public}"\n', "utf-8"
    )
    claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + LIFE}
    tokens = {each: jwt.encode(claims | {"sub": each}, key, algorithm="RS256") for each in principals}
    return f"jwt:{settings}", tokens


def with_wrong_signature(token: str, number: int) -> str:
    """Change the signature of a token, so that it has to be computed to be found wrong; each number is another."""
    head, _, signature = token.rpartition(".")
    return f"{head}.{number:08d}{signature[8:]}"
