"""Each pair of nodes can be parted alone, and in one direction."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.local import admin
from gateway.local.proxy import Way
from tests.chaos.faults import CATALOGUE
from tests.chaos.node_links import node_links, pairs
from tests.chaos.target import NODES, Target, running
from tests.support.faults import eventually

UP, DOWN = 'gateway_links{state="up"}', 'gateway_links{state="down"}'


def test_each_pair_has_a_name() -> None:
    assert pairs(("n1", "n2", "n3")) == ["n1-n2", "n1-n3", "n2-n3"]


async def test_ways_are_those_of_the_pair_whoever_dialled() -> None:
    async with node_links(("n1", "n2", "n3")) as links:
        (dialled, same), (accepted, reverse) = links.between("n1-n3")
        assert (same[Way.UP], reverse[Way.UP]) == (Way.UP, Way.DOWN)
        assert f"={dialled.port}" in links.environment()["n1"]["CONNECT_ELSEWHERE"]
        assert f"={accepted.port}" in links.environment()["n3"]["CONNECT_ELSEWHERE"]
        assert len({proxy.port for proxy in links}) == 6


async def _links(target: Target, node: str) -> dict[str, float]:
    values = await admin.read_metrics(target.stack.admin_url(node, "/metrics"))
    return {state: values.get(state, 0.0) for state in (UP, DOWN)}


@pytest.mark.cluster
@pytest.mark.redis
@pytest.mark.haproxy
@pytest.mark.parametrize("fault", [pytest.param("node-link-refused", marks=pytest.mark.thorough), "node-link-stalled"])
async def test_two_nodes_are_parted_and_the_third_is_linked_to_both(tmp_path: Path, fault: str) -> None:
    async with running("single", tmp_path, parted=True) as target:

        async def linked(expected: dict[str, float]) -> bool:
            return {node: (await _links(target, node))[UP] for node in expected} == expected

        whole = dict.fromkeys(NODES, 2.0)
        await eventually(lambda: linked(whole), "all nodes are linked")
        parameters = {"link": "n1-n3", "ways": ["up"]}
        async with CATALOGUE[fault].strike(target, parameters):
            await eventually(lambda: linked({"n1": 1.0, "n2": 2.0, "n3": 1.0}), "n1 and n3 are parted")
        await eventually(lambda: linked(whole), "all nodes are linked again")
