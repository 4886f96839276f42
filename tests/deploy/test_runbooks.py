"""A runbook's first query is about what its alert is about: the same metric, and of its series no others."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.deploy.promtool import RUNBOOKS, Selector, selectors
from tests.deploy.test_rules import ALERTS

BLOCK: Final = re.compile(r"```promql\n(.*?)```", re.DOTALL)


def wrong(expression: str, query: str) -> list[Selector]:
    """List what a query selects otherwise than the expression of the alert; all series are right, if told apart."""
    alerted: dict[str, set[tuple[tuple[str, str, str], ...]]] = {}
    for each in selectors(expression):
        alerted.setdefault(each.metric, set()).add(each.matchers)
    return [
        each
        for each in selectors(query)
        if each.metric in alerted and each.matchers and each.matchers not in alerted[each.metric]
    ]


@pytest.mark.parametrize("alert", ALERTS)
def test_the_first_query_of_a_runbook_selects_what_its_alert_does(alert: str) -> None:
    found = BLOCK.search((RUNBOOKS / f"{alert}.md").read_text("utf-8"))
    assert found is not None, "it says what to ask Prometheus"
    assert wrong(ALERTS[alert]["expr"], found[1].splitlines()[0]) == []


def test_a_query_about_other_series_is_found() -> None:
    expression = 'sum(increase(gateway_events_total{event=~"a|b"}[15m])) > 0'
    assert wrong(expression, 'increase(gateway_events_total{event="a"}[15m])')
    assert not wrong(expression, "sum by (event) (increase(gateway_events_total[15m]))")
    assert not wrong(expression, 'sum by (event) (increase(gateway_events_total{event=~"a|b"}[15m]))')
