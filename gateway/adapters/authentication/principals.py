"""What a principal may be called."""

from __future__ import annotations

import unicodedata
from typing import Final

LONGEST_PRINCIPAL: Final = 128
"""Characters: room for an e-mail address or a distinguished name; it is stored with every session."""

_FORBIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control and format characters, lone surrogates, line and paragraph separators.

They can forge lines of logs, reverse the direction of text, or cannot be encoded.
"""


def is_valid_principal(principal: str) -> bool:
    """Tell whether *principal* may be the name of somebody: not empty, not too long, nothing invisible in it."""
    return 0 < len(principal) <= LONGEST_PRINCIPAL and principal == principal.strip() and is_visible(principal)


def is_visible(text: str) -> bool:
    """Tell whether *text* has no characters that forge, hide or cannot be encoded."""
    if text.isascii():
        return text.isprintable()
    return not any(unicodedata.category(character) in _FORBIDDEN_CATEGORIES for character in text)
