"""Where pages stand in the navigation: in the sections and the order of the index of the documentation.

Nobody keeps a second list. A page that is linked from the index is in the navigation, and one that it does not link
stands in the last section, so that none is ever out of reach.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator
from typing import Final

ROOT_PAGE: Final = "README"
"""The first page of the site."""

INDEX_PAGE: Final = "docs/README"
"""Lists the pages by section."""

LAST_SECTION: Final = "Project"
"""Of all pages that no section of the index has."""

COLLECTIONS: Final = ("docs/adr/README", "docs/how-to/runbooks/README")
"""Pages that list all others of their folder. Those are not in the navigation, which every page carries: they are more
than the rest, and would double the time that the site takes to make and the size of its pages."""

_HEADING: Final = re.compile(r"^## (?P<title>[^:\n]+)")
_LINK: Final = re.compile(r"\]\((?P<path>[^)#:]+\.md)(?:#[^)]*)?\)")


def tree(index: str, pages: Collection[str]) -> str:
    """Write the navigation as Markdown for MyST, to stand in the first page and show nothing there.

    Args:
        index: the text of the index of the documentation.
        pages: all pages of the site, without suffixes.
    """
    return "".join(
        # Absolute names, wherever the first page is.
        f"\n\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "".join(f"/{each}\n" for each in placed) + "```\n"
        for title, placed in sections(index, pages)
        if placed
    )


def sections(index: str, pages: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    """Part the pages into sections, each in one; those of collections stand in none.

    Args:
        index: the text of the index of the documentation.
        pages: all pages of the site, without suffixes.
    """
    placed = {ROOT_PAGE, *(child for each in COLLECTIONS for child in _children(each, pages))}
    folder = posixpath.dirname(INDEX_PAGE)
    found: dict[str, list[str]] = {}
    section = LAST_SECTION
    for line in index.splitlines():
        if heading := _HEADING.match(line):
            section = heading["title"].strip()
        for link in _LINK.finditer(line):
            page = posixpath.normpath(posixpath.join(folder, link["path"])).removesuffix(".md")
            if page in pages and page not in placed:
                placed.add(page)
                found.setdefault(section, []).append(page)
    last = [*sorted(set(pages) - placed), *found.pop(LAST_SECTION, [])]
    yield from found.items()
    yield LAST_SECTION, last


def _children(collection: str, pages: Collection[str]) -> list[str]:
    folder = posixpath.dirname(collection)
    return sorted(each for each in pages if posixpath.dirname(each) == folder and each != collection)
