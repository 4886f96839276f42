"""Names as segments of the path of a URL, among them ``.`` and ``..``.

Whoever reads a URL may take the segments ``.`` and ``..`` out of its path, and the one before (RFC 3986 section
5.2.4); browsers do so with ``%2e%2e``, too. So these two names are written with a slash in front, which no topic,
selector or queue has: ``%2F..``. What begins with slashes and ends like that has one more, so that each name is written
in one way.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

_DOTS: Final = re.compile(r"/*\.{1,2}")


def to_segment(name: str) -> str:
    """Write a name as one segment."""
    return quote(f"/{name}" if _DOTS.fullmatch(name) else name, safe="")


def from_segment(decoded: str) -> str:
    """Read a name from a segment whose ``%`` escapes were decoded. Plain dots are taken as they are."""
    return decoded[1:] if decoded.startswith("/") and _DOTS.fullmatch(decoded) else decoded
