"""Figures that tests measure, shown at the end of the run, also when it passes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_FIGURES = "figures"
"""Name of the property of a test report that carries them, also from a worker of pytest-xdist."""


@pytest.fixture
def figures(record_property: Callable[[str, object], None], request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return a function that takes one line with what was measured."""

    def report(line: str) -> None:
        record_property(_FIGURES, f"{request.node.name}: {line}")

    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show them."""
    lines = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, value in report.user_properties
        if name == _FIGURES
    ]
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)
