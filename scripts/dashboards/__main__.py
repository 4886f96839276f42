"""``python -m scripts.dashboards write|draw``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final

import click

from scripts.dashboards import draw as drawing
from scripts.dashboards.fleet import FLEET
from scripts.dashboards.grid import GRID
from scripts.dashboards.haproxy import HAPROXY
from scripts.dashboards.model import Dashboard, render
from scripts.dashboards.node import NODE_DASHBOARD
from scripts.dashboards.queues import QUEUES
from scripts.dashboards.recovery import RECOVERY
from scripts.dashboards.requests import REQUESTS
from scripts.dashboards.zones import ZONES

DASHBOARDS: Final[tuple[Dashboard, ...]] = (
    FLEET,
    NODE_DASHBOARD,
    RECOVERY,
    QUEUES,
    REQUESTS,
    ZONES,
    GRID,
    HAPROXY,
)
"""All of them."""

FOLDER: Final = Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "dashboards"
"""Where Grafana's provisioning looks for them."""


def as_json(dashboard: Dashboard) -> str:
    """Make the text of a dashboard's file."""
    return json.dumps(render(dashboard), indent=2, ensure_ascii=False) + "\n"


@click.group()
def program() -> None:
    """Grafana's dashboards as code."""


@program.command()
def write() -> None:
    """Write the files that Grafana reads."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.name}.json").write_text(as_json(dashboard), "utf-8")


@program.command()
@click.option("--prometheus", default="http://127.0.0.1:18003", show_default=True, help="Whom to ask.")
@click.option("--minutes", type=click.FloatRange(min=0.5), default=5.0, show_default=True, help="How far back.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), required=True, help="For the pictures.")
def draw(prometheus: str, minutes: float, folder: Path) -> None:
    """Ask a running Prometheus what the panels ask, and draw the answers."""
    folder.mkdir(parents=True, exist_ok=True)
    end = time.time()
    for dashboard in DASHBOARDS:
        drawing.draw(dashboard, prometheus, minutes * 60, folder / f"dashboard-{dashboard.name}.png", end=end)


if __name__ == "__main__":
    program(prog_name="python -m scripts.dashboards")
