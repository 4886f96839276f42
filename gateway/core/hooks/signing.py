"""Signatures by the specification *Standard Webhooks* 1.0: HMAC-SHA256 over id, time and body.

```text
webhook-id:        msg_…
webhook-timestamp: 1760000000
webhook-signature: v1,<base64> v1,<base64 with the previous secret>
```
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

PREFIX: Final = "whsec_"
"""What a secret begins with, so that it is recognised where it should not be."""

KEY_BYTES: Final = range(24, 65)
"""Bytes that a key may have, as the specification says."""

ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"
"""Names of the headers."""

TOLERANCE: Final = 300
"""Seconds by which the clocks of sender and receiver may differ; an older request may be a copy of somebody."""


def read_secret(text: str) -> bytes:
    """Read a secret as people keep it, ``whsec_`` and 24 to 64 bytes in base64.

    Raises:
        ValueError: it is none; the message repeats nothing of it.
    """
    encoded = text.strip()
    if not encoded.startswith(PREFIX):
        raise ValueError(f"does not begin with {PREFIX}")
    try:
        key = b64decode(encoded.removeprefix(PREFIX), validate=True)
    except (Error, ValueError):
        raise ValueError("is no base64") from None
    if len(key) not in KEY_BYTES:
        raise ValueError(f"has {len(key)} bytes, and should have {KEY_BYTES.start} to {KEY_BYTES.stop - 1}")
    return key


def sign(message: str, body: bytes, *, keys: Sequence[bytes], now: float) -> dict[str, str]:
    """Make the headers of a request.

    Args:
        message: id of the request; the same one when it is sent again.
        body: what is posted.
        keys: one signature with each.
        now: seconds since 1970.
    """
    time = str(int(now))
    signatures = " ".join(f"v1,{_signature(key, message, time, body)}" for key in keys)
    return {ID: message, TIMESTAMP: time, SIGNATURE: signatures}


def is_signed(headers: Mapping[str, str], body: bytes, *, key: bytes, now: float) -> bool:
    """Tell whether a request was signed with a key a moment ago, as a receiver has to.

    Args:
        headers: of the request, their names in lower case.
        body: as it came.
        key: shared with the sender.
        now: seconds since 1970.
    """
    message, time = headers.get(ID, ""), headers.get(TIMESTAMP, "")
    if not (time.isascii() and time.isdecimal()) or abs(now - int(time)) > TOLERANCE:
        return False
    expected = _signature(key, message, time, body)
    given = headers.get(SIGNATURE, "").split(" ")
    return any(
        hmac.compare_digest(text.encode(), expected.encode())
        for version, _, text in (each.partition(",") for each in given)
        if version == "v1"
    )


def _signature(key: bytes, message: str, time: str, body: bytes) -> str:
    content = f"{message}.{time}.".encode() + body
    return b64encode(hmac.digest(key, content, sha256)).decode()
