"""HAProxy in its shipped container accepts as many connections as it has memory and files for, and then no more."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.test_memory_of_nodes import DEPLOY, MIB, bytes_of

CONNECTION_BYTES: Final = 33_000
"""Memory of an established connection, by HAProxy's manual (docs/explanation/scaling.md)."""

PROCESS_BYTES: Final = 48 * MIB
"""Of its two processes with nobody connected, rounded up."""

FILES: Final = 2
"""Of a connection: one on each side."""

OTHER_FILES: Final = 500
"""Listeners, checks, pipes and the like."""


def maxconn(folder: Path) -> int:
    topology = tomllib.loads((folder / "topology.toml").read_text("utf-8"))
    connections = topology["process"]["connections"]
    (rendered,) = re.findall(r"(?m)^    maxconn (\d+)$", (folder / "haproxy.cfg").read_text("utf-8"))
    assert int(rendered) == connections
    return int(rendered)


def in_compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose" / "compose.yml").read_text("utf-8"))["services"]["haproxy"]  # type: ignore[no-any-return]


def in_kubernetes() -> dict[str, Any]:
    workload = yaml.safe_load((DEPLOY / "kubernetes" / "base" / "haproxy.yaml").read_text("utf-8"))
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    return container  # type: ignore[no-any-return]


@pytest.mark.parametrize("platform", ["compose", "kubernetes"])
def test_haproxy_is_not_killed_for_the_connections_that_it_accepts(platform: str) -> None:
    if platform == "compose":
        folder, limit = DEPLOY / "compose", in_compose()["deploy"]["resources"]["limits"]["memory"]
    else:
        folder, limit = DEPLOY / "kubernetes" / "base", in_kubernetes()["resources"]["limits"]["memory"]
    assert maxconn(folder) * CONNECTION_BYTES + PROCESS_BYTES <= bytes_of(limit)


def test_haproxy_may_open_the_files_for_them() -> None:
    """It does not start with a `maxconn` that its limit of open files does not allow."""
    assert in_compose()["ulimits"]["nofile"] >= FILES * maxconn(DEPLOY / "compose") + OTHER_FILES
