"""Dashboards: what Grafana loads is what is described, complete, and asks for what there is."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise
from typing import Final

import pytest
import yaml

from scripts.dashboards.__main__ import DASHBOARDS, FOLDER, as_json
from scripts.dashboards.model import WIDTH, Dashboard, Panel, render
from tests.deploy.promtool import ROOT, selectors
from tests.deploy.test_rules import complaints

PANELS: Final = [(dashboard, panel) for dashboard in DASHBOARDS for panel in dashboard.panels()]


def by_title(value: object) -> str:
    return value.name if isinstance(value, Dashboard) else value.title if isinstance(value, Panel) else str(value)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=by_title)
def test_the_file_is_what_is_described(dashboard: Dashboard) -> None:
    assert (FOLDER / f"{dashboard.name}.json").read_text("utf-8") == as_json(dashboard), "run: make dashboards"


def test_no_other_file_is_there() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {dashboard.name for dashboard in DASHBOARDS}


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=by_title)
def test_panels_have_ids_of_their_own_and_do_not_overlap(dashboard: Dashboard) -> None:
    panels = render(dashboard)["panels"]
    assert max(Counter(panel["id"] for panel in panels).values()) == 1
    cells: Counter[tuple[int, int]] = Counter()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        cells.update(
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        )
    assert max(cells.values()) == 1


@pytest.mark.parametrize(("dashboard", "panel"), PANELS, ids=by_title)
def test_every_panel_is_explained_and_asks_for_what_there_is(dashboard: Dashboard, panel: Panel) -> None:
    assert panel.meaning.endswith(".")
    for query in panel.queries:
        assert list(selectors(query.expression)), "no metric was found in the expression"
        assert complaints(query.expression) == []
        named = set(re.findall(r"\$(\w+)", query.expression))
        assert named <= {"cluster", "__rate_interval"} | ({"node"} if dashboard.by_node else set())


@pytest.mark.parametrize(("dashboard", "panel"), PANELS, ids=by_title)
def test_colours_go_from_good_to_bad(dashboard: Dashboard, panel: Panel) -> None:
    shown = next(each for each in render(dashboard)["panels"] if each["title"] == panel.title)
    steps = shown["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert steps[0]["value"] is None
    assert all(low["value"] < high["value"] for low, high in pairwise(steps[1:]))
    assert steps[-1 if panel.low else 0]["color"] == "green"


def test_grafana_is_told_where_everything_is() -> None:
    folder = ROOT / "deploy" / "grafana" / "provisioning"
    (source,) = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((folder / "dashboards" / "gateway.yml").read_text())["providers"]
    assert source["type"] == "prometheus"
    assert provider["options"]["path"].startswith("/")
    assert all(json.loads(path.read_text())["title"] for path in FOLDER.iterdir())
