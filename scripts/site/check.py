"""Is a site whole: every link in it leads to a page, a file and a place in it, and nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_LOADED: Final = {"img": "src", "script": "src", "link": "href", "iframe": "src"}
"""Attributes by which a page loads something."""

_MADE_BY_SCRIPTS: Final = frozenset({"search.html", "genindex.html"})
"""Pages of Sphinx whose content is no text of ours."""


@dataclass
class Page(HTMLParser):
    """What a page leads to, what it loads, and where others can lead to in it."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    places: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one element."""
        found = {name: value or "" for name, value in attrs}
        if "id" in found:
            self.places.add(found["id"])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if (loaded := found.get(_LOADED.get(tag, ""))) and found.get("rel") not in {"search", "prev", "next"}:
            self.loads.append(loaded)


def read(file: Path) -> Page:
    """Read one page."""
    page = Page()
    page.feed(file.read_text(encoding="utf-8"))
    return page


def problems(folder: Path) -> list[str]:
    """Say what is wrong with the site in *folder*, a sentence each; nothing if all is well."""
    folder = folder.resolve()
    pages = {file: read(file) for file in sorted(folder.rglob("*.html"))}
    return [
        f"{file.relative_to(folder)}: {problem}"
        for file, page in pages.items()
        if file.name not in _MADE_BY_SCRIPTS
        for problem in _problems(file, page, pages)
    ]


def _problems(file: Path, page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    for loaded in page.loads:
        parts = urlsplit(loaded)
        if parts.scheme not in {"", "data"} or parts.netloc:
            yield f"loads {loaded} from elsewhere"
        elif not parts.scheme and not Path(file.parent, unquote(parts.path)).exists():
            yield f"loads {loaded}, which is not there"
    for link in page.links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc or link == "#":
            continue
        target = Path(file.parent, unquote(parts.path)).resolve() if parts.path else file
        if target.is_dir():
            target /= "index.html"
        if not target.exists():
            yield f"leads to {link}, which is not there"
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
            yield f"leads to {link}; that page has no such place"
