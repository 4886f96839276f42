"""How two clusters prove to each other that they know a secret, without telling it (zone-links 3).

Each proof is an HMAC over all that the two have said of themselves, the certificates of both included. So a proof that
was overheard is of no use on another connection, nor is one that somebody in the middle passes on.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import StrEnum
from typing import Final, NamedTuple

NAME_DIGITS: Final = 32
"""Hexadecimal digits of the name of a key: two keys share one by no chance."""

NONCE_BYTES: Final = 16
"""Of a nonce: the same one twice is not to be expected in the life of a cluster."""


class Role(StrEnum):
    """Who proves: a proof of one role is none of the other, so that it cannot be sent back."""

    DIALS = "dials"
    LISTENS = "listens"


class Meeting(NamedTuple):
    """What a proof is bound to.

    Attributes:
        reference: which zone, or which join.
        dialer: the cluster that dials.
        listener: the cluster that was dialled; empty as long as the dialer does not know it.
        dialer_nonce: made by chance for this connection.
        listener_nonce: likewise.
        dialer_fingerprint: of the certificate that the dialer has shown.
        listener_fingerprint: likewise.
    """

    reference: str
    dialer: str
    listener: str
    dialer_nonce: str
    listener_nonce: str
    dialer_fingerprint: str
    listener_fingerprint: str


def key_name(key: str) -> str:
    """Name a key without telling anything of it: by this name a join is found at its other end."""
    return hmac.new(bytes.fromhex(key), b"name", hashlib.sha256).hexdigest()[:NAME_DIGITS]


def proof(key: str, role: Role, meeting: Meeting) -> str:
    """Prove that one has a key (``gateway.core.zones.records.zone_key``); in hexadecimal."""
    digest = hmac.new(bytes.fromhex(key), digestmod=hashlib.sha256)
    for part in (role.value, *meeting):
        text = part.encode()
        # Without their lengths, two parts could be cut in two ways.
        digest.update(len(text).to_bytes(4))
        digest.update(text)
    return digest.hexdigest()


def proves(told: str, key: str, role: Role, meeting: Meeting) -> bool:
    """Tell whether a proof is right, in a time that does not depend on how much of it is."""
    return hmac.compare_digest(told.encode(), proof(key, role, meeting).encode())
