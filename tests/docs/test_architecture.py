"""The page about the architecture names every package, and its walks name functions that exist."""

from __future__ import annotations

import importlib
import inspect
import re
from operator import attrgetter
from typing import Final

import pytest

from tests.docs.architecture import PAGE, ROOT, read_tree, read_walks

DEPTH: Final = 3
"""Segments of the paths in the tree: ``gateway/app/delivery`` and what is above it, and nothing below."""

ADAPTERS: Final = ROOT / "gateway" / "adapters"
"""Its modules are in the tree, too: some of the adapters are one module each."""

HOPS: Final = sorted({hop for lists in read_walks().values() for hops in lists for hop in hops})


def test_the_tree_has_every_package_and_no_other() -> None:
    found = (init.parent.relative_to(ROOT) for init in (ROOT / "gateway").rglob("__init__.py"))
    packages = {path.as_posix() for path in found if 1 < len(path.parts) <= DEPTH}
    adapters = {path.relative_to(ROOT).as_posix() for path in ADAPTERS.glob("*.py") if path.name != "__init__.py"}
    tree = read_tree()

    assert len(tree) == len(set(tree))
    assert sorted((packages | adapters) - set(tree)) == [], f"missing in the tree of {PAGE.name}"
    assert sorted(set(tree) - packages - adapters) == [], f"in the tree of {PAGE.name}, and not in the source"


def test_there_are_four_walks() -> None:
    walks = read_walks()

    assert len(walks) == 4
    assert all(len(hops) > 3 for lists in walks.values() for hops in lists)
    section = PAGE.read_text("utf-8").partition("\n## Four walks\n")[2].partition("\n## ")[0]
    read = sum(len(hops) for lists in walks.values() for hops in lists)
    assert len(re.findall(r"^\d+\. ", section, re.MULTILINE)) == read, "one of the hops was not read"


@pytest.mark.parametrize("hop", HOPS)
def test_every_hop_is_a_function_that_exists(hop: str) -> None:
    module, _, name = hop.partition(":")

    function = attrgetter(name)(importlib.import_module(module))

    assert inspect.isroutine(function)
    assert (function.__module__, function.__qualname__) == (module, name)
