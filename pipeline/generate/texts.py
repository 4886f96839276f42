"""Names of what is only a number: sessions, principals, nodes, incarnations; always the same for the same seed."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gateway.core.journal import JOURNAL_PARTITIONS
from pipeline.generate.units import Numbers

SESSION_LETTERS: Final = 22
"""As long as the gateway's own ids: 128 bits in base 64."""

PRINCIPAL_LETTERS: Final = 12
"""``user-`` and seven digits."""

INCARNATION_LETTERS: Final = 12
"""Six bytes in hexadecimal digits, as the gateway's own."""

_ALPHABET: Final = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_STREAM: Final = np.uint64(0xD1B54A32D192ED03)
"""Odd numbers; multiples of the first are spread evenly, those of the second keep the halves of an id apart."""


def _mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread numbers over 64 bits, none onto the same as another (splitmix64)."""
    with np.errstate(over="ignore"):
        numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def session_letters(seed: int, numbers: Numbers) -> NDArray[np.uint8]:
    """Return the ids of sessions, a row of ASCII letters for each."""
    with np.errstate(over="ignore"):
        plain = (numbers.astype(np.uint64) + np.uint64(1)) * _GOLDEN + _mix(np.array([seed], np.uint64))
        first, second = _mix(plain), _mix(plain ^ _STREAM)
    result = np.empty((len(numbers), SESSION_LETTERS), np.uint8)
    half = SESSION_LETTERS // 2
    for place in range(half):
        shift = np.uint64(6 * place)
        result[:, place] = _ALPHABET[((first >> shift) & np.uint64(63)).astype(np.intp)]
        result[:, half + place] = _ALPHABET[((second >> shift) & np.uint64(63)).astype(np.intp)]
    return result


def principal_letters(numbers: Numbers) -> NDArray[np.uint8]:
    """Return the names of principals, a row of ASCII letters for each."""
    result = np.empty((len(numbers), PRINCIPAL_LETTERS), np.uint8)
    result[:, :5] = np.frombuffer(b"user-", np.uint8)
    rest = numbers.copy()
    for place in range(PRINCIPAL_LETTERS - 1, 4, -1):
        rest, digit = np.divmod(rest, 10)
        result[:, place] = digit + ord("0")
    return result


def streams_of(letters: NDArray[np.uint8]) -> Numbers:
    """Tell the stream of each name, as ``gateway.core.journal.journal_partition`` does, all at once."""
    rest = np.full(len(letters), 0xFFFFFFFF, np.uint32)
    for place in range(letters.shape[1]):
        rest = _CRC[(rest ^ letters[:, place]) & np.uint32(0xFF)] ^ (rest >> np.uint32(8))
    return ((rest ^ np.uint32(0xFFFFFFFF)) % np.uint32(JOURNAL_PARTITIONS)).astype(np.int64)


def _entry(byte: int) -> int:
    """Return one entry of the table of CRC-32."""
    for _bit in range(8):
        byte = (byte >> 1) ^ (0xEDB88320 if byte & 1 else 0)
    return byte


_CRC: Final = np.array(list(map(_entry, range(256))), np.uint32)
"""That table."""


def node_name(node: int) -> str:
    """Return the name of a node."""
    return f"n{node}"


def incarnation(seed: int, run: int) -> str:
    """Return the incarnation of a run."""
    mixed = int(_mix(np.array([(seed * 1_000_003 + run + 1) % (1 << 64)], np.uint64))[0])
    return f"{mixed % 16**INCARNATION_LETTERS:0{INCARNATION_LETTERS}x}"


def release_name(release: int) -> str:
    """Return the version of a release."""
    return f"1.{release}.0"
