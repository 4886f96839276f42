"""Changes of keys of TLS 1.3 (RFC 8446 section 4.6.3), by the thousand: the standard library's client sends none.

They are made from the secret that a client writes into its key log, so that the records are real ones. Whoever has made
some has to send everything that comes after them by itself, because its TLS library knows nothing of them.
"""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_UPDATE: Final = b"\x18\x00\x00\x01\x00"
"""A handshake message: the keys change, and no change is asked for."""

_HANDSHAKE: Final = b"\x16"
_APPLICATION: Final = b"\x17"
"""What the content of a record is."""

_DIGESTS: Final = {"TLS_AES_128_GCM_SHA256": ("sha256", 16), "TLS_AES_256_GCM_SHA384": ("sha384", 32)}
"""Of a cipher suite: the hash, and bytes of a key."""


class KeyUpdates:
    """The sending half of a client after its handshake.

    Args:
        key_log: that the client's context writes; of one connection.
        cipher: name of the suite that was agreed on.
        sent: records that the client has sent with its first keys.
    """

    def __init__(self, key_log: Path, cipher: str, sent: int) -> None:
        (line,) = [each for each in key_log.read_text().splitlines() if each.startswith("CLIENT_TRAFFIC_SECRET_0 ")]
        self._secret = bytes.fromhex(line.split()[2])
        self._digest, self._key_bytes = _DIGESTS[cipher]
        self._sent = sent

    def change(self, count: int) -> bytes:
        """Make records that change the keys so many times."""
        return b"".join([self._change() for _ in range(count)])

    def say(self, content: bytes, padding: int = 0) -> bytes:
        """Make one record that says something.

        Args:
            content: of the application.
            padding: zeroes behind it, which TLS takes off.
        """
        return self._record(content + _APPLICATION + bytes(padding))

    def _change(self) -> bytes:
        record = self._record(KEY_UPDATE + _HANDSHAKE)
        self._secret, self._sent = self._expand(b"traffic upd", len(self._secret)), 0
        return record

    def _record(self, inner: bytes) -> bytes:
        key, salt = self._expand(b"key", self._key_bytes), self._expand(b"iv", 12)
        nonce = (int.from_bytes(salt, "big") ^ self._sent).to_bytes(12, "big")
        self._sent += 1
        head = b"\x17\x03\x03" + (len(inner) + 16).to_bytes(2, "big")
        return head + AESGCM(key).encrypt(nonce, inner, head)

    def _expand(self, label: bytes, size: int) -> bytes:
        """HKDF-Expand-Label, for at most as many bytes as the hash has (RFC 8446 section 7.1)."""
        label = b"tls13 " + label
        info = size.to_bytes(2, "big") + bytes([len(label)]) + label + b"\0" + b"\1"
        return hmac.digest(self._secret, info, self._digest)[:size]
