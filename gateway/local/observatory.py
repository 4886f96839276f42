"""The Prometheus of a local stack: it scrapes the nodes and HAProxy, and judges them by the alerts of ``deploy``.

The configuration and the rules are those that ``deploy/prometheus`` ships; only what is scraped, how often, and for a
test how long an alert waits, are of this stack.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.local import admin
from gateway.local.ports import LOOPBACK, PortPlan
from gateway.local.processes import ManagedProcess, ProcessFailed

START_SECONDS: Final = 120.0
"""How long Prometheus may take to read an empty database and answer; usually under a second."""

SHIPPED: Final = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
"""Configuration and rules; in a checkout, not in an installed package."""

_INTERVALS: Final = re.compile(r"^(  (?:scrape|evaluation)_interval:) \S+$", re.MULTILINE)
_PATIENCE: Final = re.compile(r"^( +for:) \S+$", re.MULTILINE)
_BOTH: Final = 2
"""Intervals that the shipped configuration sets."""

_ALERT_PAGES: Final = ("/alerts", "/classic/alerts")
"""Where builds of Prometheus show their alerts: those of the project, and those of Debian and Ubuntu, which leave out
the page that the project builds with Node.js, and keep the older one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """How closely a stack is watched.

    Attributes:
        interval: seconds between two scrapes, and between two evaluations of the rules.
        patience: seconds for which a condition must hold before its alert fires, in place of what each alert says;
            None leaves them alone.
    """

    interval: int = 2
    patience: int | None = None


class Observatory:
    """One Prometheus with a folder of its own."""

    def __init__(
        self,
        program: str,
        *,
        ports: PortPlan,
        folder: Path,
        logs: Path,
        observation: Observation,
        detached: bool = False,
    ) -> None:
        """Describe it; nothing starts yet.

        Args:
            program: path of prometheus.
            ports: of the stack.
            folder: for its configuration and data.
            logs: folder for its log.
            observation: how closely to look.
            detached: whether it outlives this process.

        Raises:
            ProcessFailed: there is no configuration to run it with: this is no checkout.
        """
        if not SHIPPED.is_dir():
            raise ProcessFailed(f"{SHIPPED} is not there: Prometheus can be started from a checkout only")
        self._ports = ports
        self._folder = folder
        self._observation = observation
        self.process = ManagedProcess(
            "prometheus",
            [
                program,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--storage.tsdb.retention.time=2d",
                f"--web.listen-address={LOOPBACK}:{ports.prometheus}",
                "--log.level=warn",
            ],
            log=logs / "prometheus.log",
            detached=detached,
        )

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{LOOPBACK}:{self._ports.prometheus}"

    async def alerts_url(self) -> str:
        """Find where people see the alerts: which page this build has. The root, if it has none or does not answer."""
        for page in _ALERT_PAGES:
            if await admin.answers_ok(self.url + page):
                return self.url + page
        return self.url

    async def start(self, *, balancer: bool) -> None:
        """Write its configuration, start it and wait until it answers.

        Args:
            balancer: whether there is an HAProxy to scrape.

        Raises:
            ProcessFailed: it did not come up.
        """
        self._configure(balancer=balancer)
        self.process.start()
        await self.process.ready(lambda: admin.answers_ok(f"{self.url}/-/ready"), timeout=START_SECONDS)

    def _configure(self, *, balancer: bool) -> None:
        rules, targets = self._folder / "rules", self._folder / "targets"
        for each in (rules, targets):
            shutil.rmtree(each, ignore_errors=True)
            each.mkdir(parents=True)
        paces, configuration = self._paced((SHIPPED / "prometheus.yml").read_text("utf-8"))
        if paces != _BOTH:
            raise ProcessFailed(f"{SHIPPED / 'prometheus.yml'} no longer says how often to scrape and to evaluate")
        (self._folder / "prometheus.yml").write_text(configuration, "utf-8")
        for file in (SHIPPED / "rules").glob("*.yml"):
            text = file.read_text("utf-8")
            if self._observation.patience is not None:
                text = _PATIENCE.sub(rf"\1 {self._observation.patience}s", text)
            (rules / file.name).write_text(text, "utf-8")
        nodes = [_target(ports.admin, {"node": name}) for name, ports in self._ports.nodes.items()]
        # JSON is YAML.
        (targets / "gateway.yml").write_text(json.dumps(nodes))
        (targets / "haproxy.yml").write_text(
            json.dumps([_target(self._ports.balancer_metrics, {})] if balancer else [])
        )

    def _paced(self, text: str) -> tuple[int, str]:
        text, count = _INTERVALS.subn(rf"\1 {self._observation.interval}s", text)
        return count, text


def _target(port: int, labels: Mapping[str, str]) -> dict[str, object]:
    return {"targets": [f"{LOOPBACK}:{port}"], "labels": dict(labels)}
