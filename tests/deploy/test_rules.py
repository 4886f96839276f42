"""Rules for Prometheus: accepted by its own checker, and each alert fires when it should and only then."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gateway.adapters.metrics import PrometheusMetrics
from gateway.catalogue.metric import Kind
from gateway.catalogue.metrics import METRICS
from tests.deploy import balancer_rule_cases, client_rule_cases, grid_rule_cases, node_rule_cases, zone_rule_cases
from tests.deploy.promtool import PROMETHEUS, RUNBOOKS, promtool, selectors
from tests.deploy.rule_notation import Case

RULE_FILES: Final = sorted((PROMETHEUS / "rules").glob("*.yml"))
RULES: Final[list[dict[str, Any]]] = [
    rule
    for file in RULE_FILES
    for group in yaml.safe_load(file.read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
ALERTS: Final = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDED: Final = {rule["record"] for rule in RULES if "record" in rule}
CASES: Final = (
    node_rule_cases.CASES
    | client_rule_cases.CASES
    | grid_rule_cases.CASES
    | balancer_rule_cases.CASES
    | zone_rule_cases.CASES
)
SEVERITIES: Final = {"critical", "warning", "info"}


def test_prometheus_accepts_its_configuration_and_the_rules() -> None:
    checked = promtool("check", "config", str(PROMETHEUS / "prometheus.yml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    checked = promtool("check", "rules", *map(str, RULE_FILES))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_prometheus_finds_nothing_to_complain_of_in_the_metrics_of_a_node() -> None:
    checked = promtool("check", "metrics", given=PrometheusMetrics().render().decode())
    complaints = [line for line in checked.stderr.splitlines() if line.startswith("gateway_")]
    assert complaints == []
    assert checked.returncode in {0, 3}, checked.stderr  # 3: of python_…, which are not ours


def test_every_alert_has_a_case_and_every_case_an_alert() -> None:
    assert CASES.keys() == ALERTS.keys()


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_says_what_to_do(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in SEVERITIES
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert all(text.endswith(".") for name, text in rule["annotations"].items() if name != "runbook_url")
    assert rule["annotations"]["runbook_url"] == f"{{{{ $externalLabels.runbooks }}}}/{alert}.md"
    assert (RUNBOOKS / f"{alert}.md").is_file()


def test_every_runbook_has_an_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"} == ALERTS.keys()


def unit_test(case: Case, series: dict[str, str], alert: str, expected: dict[str, str] | None) -> dict[str, Any]:
    """One of promtool's: what fires is asked of the series that Prometheus keeps of its alerts."""
    labels = None
    if expected is not None:
        named = {"__name__": "ALERTS", "alertname": alert, "alertstate": "firing", **expected}
        labels = "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in named.items()) + "}"
    return {
        "interval": f"{case.step}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertname="{alert}",alertstate="firing"}}',
                "eval_time": f"{case.steps * case.step}s",
                "exp_samples": [] if labels is None else [{"labels": labels, "value": 1}],
            }
        ],
    }


def alone(alert: str) -> dict[str, Any]:
    """A file of rules with one alert and all that is recorded: promtool evaluates every rule that it is given."""
    recorded = [rule for rule in RULES if "record" in rule]
    return {"groups": [{"name": "recorded", "rules": recorded}, {"name": "alert", "rules": [ALERTS[alert]]}]}


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_fires_when_it_should_and_only_then(alert: str, tmp_path: Path) -> None:
    case = CASES[alert]
    severity = {"severity": ALERTS[alert]["labels"]["severity"]}
    tests = [unit_test(case, case.fires, alert, case.labels | severity)]
    more = case.labels if case.more_labels is None else case.more_labels
    tests += [unit_test(case, series, alert, more | severity) for series in case.more_fires]
    tests += [unit_test(case, series, alert, None) for series in case.quiet]
    rules, file = tmp_path / "rules.yml", tmp_path / "tests.yml"
    rules.write_text(yaml.safe_dump(alone(alert)))
    file.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}))
    checked = promtool("test", "rules", str(file))
    assert checked.returncode == 0, checked.stdout + checked.stderr


@cache
def known_series() -> dict[str, dict[str, set[str] | None]]:
    """Everything a node exports: series by name, with the labels each may have and the values known of them."""
    known: dict[str, dict[str, set[str] | None]] = {}
    for metric in METRICS:
        labels: dict[str, set[str] | None] = {}
        if metric.label:
            labels[metric.label] = None if metric.open else {*metric.values, "other"}
        if metric.kind is Kind.HISTOGRAM:
            known |= {f"{metric.name}_{part}": labels for part in ("sum", "count")}
            labels = labels | {"le": None}
        known[f"{metric.name}_bucket" if metric.kind is Kind.HISTOGRAM else metric.name] = labels
    for name in re.findall(r"^((?:process|python)_\w+)", PrometheusMetrics().render().decode(), re.MULTILINE):
        known[name] = {"generation": None}
    return known


def complaints(expression: str) -> list[str]:
    """What of an expression names nothing that there is. Others' names are tried on real ones elsewhere."""
    known, wrong = known_series(), []
    for selector in selectors(expression):
        if selector.metric in {"up", "ALERTS", *RECORDED} or selector.metric.startswith(("haproxy_", "probe_")):
            continue
        if selector.metric not in known:
            wrong.append(f"there is no metric {selector.metric}")
            continue
        labels = known[selector.metric]
        for name, operator, value in selector.matchers:
            if name in {"cluster", "node", "job", "instance"}:
                continue
            if name not in labels:
                wrong.append(f"{selector.metric} has no label {name}")
            values = labels.get(name)
            alternatives = value.split("|") if "~" in operator else [value]
            wrong += [
                f"{selector.metric} has no {name}={each}"
                for each in alternatives
                if values is not None and each not in values
            ]
    return wrong


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_every_metric_that_a_rule_names_exists(rule: dict[str, Any]) -> None:
    assert list(selectors(rule["expr"])), "no metric was found in the expression"
    assert complaints(rule["expr"]) == []


@pytest.mark.parametrize("page", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: path.stem)
def test_every_metric_that_a_runbook_names_exists(page: Path) -> None:
    known = {name.removesuffix(end) for name in known_series() for end in ("", "_bucket", "_sum", "_count")} | RECORDED
    named = set(re.findall(r"(?:[a-z]+:)?\bgateway_[a-z0-9_:]+", page.read_text("utf-8")))
    assert {name for name in named if name.strip(":") not in known} == set()


@pytest.mark.parametrize(
    "expression", ["gateway_nothing", 'gateway_resumes_total{outcom="x"}', 'gateway_publishes_total{result="x"}']
)
def test_a_wrong_name_is_found(expression: str) -> None:
    assert complaints(expression)
