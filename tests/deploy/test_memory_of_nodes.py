"""A node in its shipped container holds all that clients may have it hold: it is not short of memory, nor killed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gateway.app.admission.memory import ENOUGH_AT
from gateway.app.delivery.recent_entries import RECENT_BYTES
from gateway.app.registry.former_sessions import KEPT_BYTES
from gateway.core.policy.permissions import ANSWERS_BYTES
from gateway.core.topics.topics import TOPIC_PARTITIONS
from gateway.settings import Settings

DEPLOY: Final = Path(__file__).parents[2] / "deploy"

MIB: Final = 1024**2

REPLICA_FACTOR: Final = 2.4
"""Memory of a node for each byte that limit_partition_bytes counts, at worst: 2.34 with values of one byte, 1.4 with a
thousand, 1.15 with the largest (``python -m benchmarks.replica_memory``)."""

PROCESS_BYTES: Final = 80 * MIB
"""Resident memory of a node that serves nobody, rounded up."""


def bytes_of(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([a-zA-Z]+)", text).groups()  # type: ignore[union-attr]
    return int(number) * {"m": MIB, "mi": MIB, "g": 1024 * MIB, "gi": 1024 * MIB}[unit.lower()]


def in_compose() -> dict[str, int]:
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / "compose.yml").read_text("utf-8"))["services"]
    nodes = {name: each for name, each in services.items() if re.fullmatch(r"n\d+", name)}
    return {name: bytes_of(each["deploy"]["resources"]["limits"]["memory"]) for name, each in nodes.items()}


def in_kubernetes() -> dict[str, int]:
    found: dict[str, int] = {}
    for part in yaml.safe_load_all((DEPLOY / "kubernetes" / "base" / "nodes.yaml").read_text("utf-8")):
        if part and part["kind"] == "StatefulSet":
            for container in part["spec"]["template"]["spec"]["containers"]:
                found[container["name"]] = bytes_of(container["resources"]["limits"]["memory"])
    return found


@pytest.mark.promise("P20")
def test_a_node_that_follows_everything_fits_into_its_container() -> None:
    """P20: full partitions, followed by a client of each node, leave a node room to take new connections."""
    defaults = Settings()
    held = TOPIC_PARTITIONS * (defaults.limit_partition_bytes * REPLICA_FACTOR + RECENT_BYTES)
    held += defaults.limit_node_request_bytes + defaults.limit_buffer_bytes + ANSWERS_BYTES + PROCESS_BYTES + KEPT_BYTES
    containers = in_compose() | in_kubernetes()
    assert len(containers) >= 4
    for name, given in containers.items():
        # Below this share a node that was short of memory takes new connections again. What is kept for disconnected
        # clients is not in the sum: it is given up when memory is short.
        assert held < ENOUGH_AT * given, name
