"""Two living nodes of one name: the later one takes no new sessions, both say so, and a restart is no such case."""

from __future__ import annotations

import re

import aiohttp

from gateway.adapters.memory import MemoryGridServer
from gateway.catalogue import log_events as events
from gateway.catalogue.metrics import NAMESAKES
from tests.support.clock import eventually
from tests.support.nodes import SHORT_LEASE, TestNode, running_node
from tests.support.raw_client import RawClient


def told(node: TestNode) -> list[dict[str, object]]:
    return node.log.of(events.NODE_NAME_TAKEN)


def metrics_of(node: TestNode) -> float:
    (found,) = re.findall(rf"(?m)^{NAMESAKES.name} (\S+)$", node.gateway.metrics.render().decode())
    return float(found)


async def ready(node: TestNode) -> tuple[int, str]:
    async with aiohttp.ClientSession() as http, http.get(f"{node.admin}/readyz") as answer:
        return answer.status, await answer.text()


async def test_of_two_living_nodes_of_one_name_the_later_one_takes_no_sessions() -> None:
    memory = MemoryGridServer()
    async with (
        running_node("n1", memory=memory, **SHORT_LEASE) as first,
        running_node("n2", memory=memory, **SHORT_LEASE) as other,
    ):
        async with running_node("n1", memory=memory, **SHORT_LEASE) as second:
            await eventually(lambda: bool(told(first) and told(second)), message="both say so")

            assert [(each["other"], each["takes_sessions"]) for each in told(first)] == [(str(second.gateway.me), True)]
            assert [(each["other"], each["takes_sessions"]) for each in told(second)] == [
                (str(first.gateway.me), False)
            ]
            assert told(second)[0]["other_admin"] == first.admin
            status, text = await ready(second)
            assert status == 503
            assert f"another node has the name n1 (admin port {first.admin})" in text
            status, text = await ready(first)
            assert status == 200
            assert f"another node has the name n1 (admin port {second.admin})" in text
            assert [metrics_of(each) for each in (first, second, other)] == [1, 1, 0]
            async with RawClient(first.url) as client:
                assert (await client.hello())["node"] == "n1"
            assert (await ready(other))[0] == 200
            assert not told(other)

        # It was stopped hard, so that its lease has to end first.
        await eventually(lambda: metrics_of(first) == 0, message="its lease has ended")
        assert "another node" not in (await ready(first))[1]


async def test_who_comes_back_to_a_name_that_is_taken_by_now_yields() -> None:
    """A machine was cut off, and its node replaced meanwhile."""
    memory = MemoryGridServer()
    async with running_node("n1", memory=memory, **SHORT_LEASE) as former:
        grid = former.gateway.node._context.grid
        async with running_node("n1", memory=memory, **SHORT_LEASE) as present:
            # Its lease ends as if it had stood still, and it joins again, now as the later one.
            await grid.nodes.leave(former.gateway.me)
            await eventually(lambda: bool(told(former) and told(present)), message="both say so")

            assert (await ready(former))[0] == 503
            assert (await ready(present))[0] == 200


async def test_a_node_that_is_started_again_after_a_kill_is_nobodys_namesake() -> None:
    memory = MemoryGridServer()
    async with running_node("n2", memory=memory, **SHORT_LEASE) as other:
        async with running_node("n1", memory=memory, **SHORT_LEASE) as killed:
            gone = killed.gateway.me
        async with running_node("n1", memory=memory, **SHORT_LEASE) as again:
            grid = again.gateway.node._context.grid

            async def is_taken_over() -> bool:
                return gone in {each.node for each in await grid.nodes.lost()}

            await eventually(is_taken_over, message="others have taken over from it")
            assert (await ready(again))[0] == 200
            assert told(again) == told(other) == []
            assert metrics_of(again) == 0
