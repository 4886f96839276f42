"""What the page about the architecture says: its tree of packages and its walks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "explanation" / "architecture.md"

HOP: Final = re.compile(r"^(\d+)\. `(gateway\.[\w.]+:[\w.]+)`", re.MULTILINE)
"""An entry of a walk: its place in its list, and ``module:function``."""


def read_tree() -> list[str]:
    """List the packages and modules of the tree, as paths from the top of the repository."""
    _, _, rest = PAGE.read_text("utf-8").partition("<!-- tree:")
    tree, _, _ = rest.partition("<!-- end of tree -->")
    return re.findall(r"^\| `([\w/]+(?:\.py)?)` \|", tree, re.MULTILINE)


def read_walks() -> dict[str, list[list[str]]]:
    """Read the walks.

    Returns:
        By the title of each walk its lists, each of hops as ``module:function``.
    """
    _, _, rest = PAGE.read_text("utf-8").partition("\n## Four walks\n")
    section, _, _ = rest.partition("\n## ")
    walks: dict[str, list[list[str]]] = {}
    for title, text in re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", section, re.MULTILINE | re.DOTALL):
        lists = walks[title] = []
        for number, hop in HOP.findall(text):
            if number == "1":
                lists.append([])
            lists[-1].append(hop)
    return walks
