"""The reader of names in PromQL: a name that it misses would go unchecked."""

from __future__ import annotations

import pytest

from tests.deploy.promtool import Selector, selectors


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("up", ["up"]),
        ('sum by (node) (rate(a_total{x="1", y=~"b|c"}[5m])) > 0.5', ["a_total"]),
        ("a / on (cluster) group_left (node) b", ["a", "b"]),
        ("a unless b or c and d", ["a", "b", "c", "d"]),
        ("histogram_quantile(0.99, sum by (le) (rate(h_bucket[1m])))", ["h_bucket"]),
        ('label_replace(s{state="DOWN"}, "node", "$1", "server", "(.+)") == 1', ["s"]),
        ("cluster:gateway_sessions:sum * 1e-3", ["cluster:gateway_sessions:sum"]),
        ("max_over_time(m[10m:1m] offset 5m)", ["m"]),
        ("count(a{}) or vector(0)", ["a"]),
    ],
)
def test_every_metric_is_found_and_nothing_else(expression: str, names: list[str]) -> None:
    assert [each.metric for each in selectors(expression)] == names


def test_matchers_are_read() -> None:
    assert list(selectors('rate(a{x="1", y!~"b|c"}[$__rate_interval])')) == [
        Selector("a", (("x", "=", "1"), ("y", "!~", "b|c")))
    ]
