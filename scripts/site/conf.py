"""What Sphinx makes the site of: the pages as they are in the repository, so that each reads the same there.

Sphinx runs this file; its names are Sphinx' (https://www.sphinx-doc.org/en/master/usage/configuration.html).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

from sphinx.application import Sphinx

from gateway import __version__
from scripts.site import navigation

_ROOT: Final = Path(__file__).resolve().parents[2]

project = "Session gateway"
author = "the authors of the session gateway"
project_copyright = "the authors of the session gateway; Apache-2.0"
version = release = __version__
language = "en"

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = navigation.ROOT_PAGE
# A page outside of docs is on the site at the same place as in the repository, so links between pages need no rule.
include_patterns = [
    "*.md",
    "docs/**",
    "deploy/README.md",
    "benchmarks/README.md",
    "benchmarks/*/README.md",
    "clients/*/README.md",
    "examples/README.md",
    "examples/*/README.md",
]
# Dots: the virtual environment, git, what runs leave behind.
exclude_patterns = [".*", "**/.*", "**/node_modules"]

# Anchors as code hosts make them, which links between pages use.
myst_heading_anchors = 6
# Pygments does not know that names of Prometheus' recording rules have colons; it shows them nevertheless.
# Pages of collections are listed by their own index alone: see scripts/site/navigation.py.
suppress_warnings = ["misc.highlighting_failure", "toc.not_included"]

html_theme = "furo"
html_title = f"Session gateway {__version__}"
html_favicon = str(_ROOT / "gateway/adapters/admin/page/icon.svg")
html_static_path = [str(Path(__file__).with_name("static"))]
html_css_files = ["site.css"]
html_js_files = ["from_disk.js"]
html_copy_source = False
html_show_sourcelink = False
# The colours of the console and of the demo page.
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f4fc9", "color-brand-content": "#1f4fc9"},
    "dark_css_variables": {"color-brand-primary": "#8fb0ff", "color-brand-content": "#8fb0ff"},
}


def add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the navigation behind the text of the first page; nothing of it is shown in the page.

    Args:
        app: holds the names of all pages.
        page: without its suffix, such as ``docs/README``.
        source: one text, to be changed in its place.
    """
    if page == root_doc:
        index = (_ROOT / f"{navigation.INDEX_PAGE}.md").read_text(encoding="utf-8")
        source[0] += navigation.tree(index, app.env.found_docs)


def write_index(app: Sphinx, error: Exception | None) -> None:
    """Have the folder itself lead to the first page."""
    if error is None and app.builder.format == "html":
        shutil.copyfile(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what is ours; Sphinx calls this."""
    app.connect("source-read", add_navigation)
    app.connect("build-finished", write_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
