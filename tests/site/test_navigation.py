"""Where pages stand in the navigation of the documentation site."""

from __future__ import annotations

from scripts.site.navigation import sections, tree

INDEX = """\
# Documentation

## Tutorial: learn by doing

- [First](tutorial/first.md): begin here.

## How-to: get one thing done

| you want to | page |
|---|---|
| deploy | [Deploy](../deploy/README.md), [roll out](how-to/roll-out.md#when) |
| again | [Deploy](../deploy/README.md) |
| be woken | [Runbooks](how-to/runbooks/README.md) |

## Explanation: understand why

- [Elsewhere](https://example.org/other.md) and [Decisions](adr/README.md)
"""

PAGES = {
    *("README", "CHANGELOG", "deploy/README", "docs/README", "docs/adr/0001-one", "docs/adr/README"),
    *(
        "docs/explanation/forgotten",
        "docs/how-to/roll-out",
        "docs/how-to/runbooks/Alert",
        "docs/how-to/runbooks/README",
    ),
    "docs/tutorial/first",
}


def test_pages_stand_in_the_sections_and_the_order_of_the_index() -> None:
    assert list(sections(INDEX, PAGES)) == [
        ("Tutorial", ["docs/tutorial/first"]),
        ("How-to", ["deploy/README", "docs/how-to/roll-out", "docs/how-to/runbooks/README"]),
        ("Explanation", ["docs/adr/README"]),
        ("Project", ["CHANGELOG", "docs/README", "docs/explanation/forgotten"]),
    ]


def test_a_page_that_the_index_forgets_is_in_the_navigation_and_one_of_a_collection_is_not() -> None:
    placed = [page for _, pages in sections(INDEX, PAGES) for page in pages]

    assert sorted(placed) == sorted(PAGES - {"README", "docs/adr/0001-one", "docs/how-to/runbooks/Alert"})


def test_the_navigation_shows_nothing_in_the_page_that_has_it() -> None:
    written = tree(INDEX, PAGES)

    assert written.count("```{toctree}\n:hidden:\n:caption: ") == 4
    assert "/docs/how-to/roll-out\n" in written
