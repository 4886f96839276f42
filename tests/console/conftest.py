"""Figures that tests measure; ``tests/cluster/conftest.py`` shows them at the end of a run."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def figures(record_property: Callable[[str, object], None], request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return a function that takes one line with what was measured."""

    def report(line: str) -> None:
        record_property("figures", f"{request.node.name}: {line}")

    return report
