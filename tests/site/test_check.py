"""What is wrong with a site is found: links to nothing, and what is loaded from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.site.check import problems


def site(folder: Path, body: str) -> Path:
    (folder / "docs").mkdir()
    (folder / "index.html").write_text('<h2 id="two">Two</h2><link rel="next" href="gone.html">')
    (folder / "docs" / "page.html").write_text(f'<h1 id="one">One</h1>{body}')
    (folder / "docs" / "a b.txt").write_text("")
    return folder


@pytest.mark.parametrize(
    "body",
    [
        '<a href="../index.html#two">',
        '<a href="..">',
        '<a href="#one">',
        '<a href="#">',
        '<a href="a%20b.txt">',
        '<a href="https://example.org/x">',
        '<a href="mailto:a@example.org">',
        '<img src="data:image/png;base64,AA==">',
    ],
)
def test_what_leads_somewhere_is_no_problem(tmp_path: Path, body: str) -> None:
    assert problems(site(tmp_path, body)) == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="gone.html">', "leads to gone.html, which is not there"),
        ('<a href="../index.html#three">', "leads to ../index.html#three; that page has no such place"),
        ('<a href="#three">', "leads to #three; that page has no such place"),
        ('<img src="gone.png">', "loads gone.png, which is not there"),
        ('<script src="https://example.org/x.js">', "loads https://example.org/x.js from elsewhere"),
        ('<link rel="stylesheet" href="//example.org/x.css">', "loads //example.org/x.css from elsewhere"),
    ],
)
def test_what_a_reader_would_trip_over_is_told(tmp_path: Path, body: str, problem: str) -> None:
    assert problems(site(tmp_path, body)) == [f"docs/page.html: {problem}"]
