"""Hooks of real nodes: one is killed before it can note what was taken, Redis is restarted, a receiver stays away."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.client import connect
from gateway.local.grid_server import GridRestart
from gateway.local.stack import Stack
from tests.cluster.crowds import Figures
from tests.support.faults import eventually
from tests.support.hook_receiver import HookReceiver
from tests.support.stack import cluster
from tests.support.times import scaled

pytestmark = [pytest.mark.cluster, pytest.mark.redis]

SETTINGS: Final[dict[str, Any]] = {
    "journal": "true",
    "lease": scaled(2.0),
    "lease_renew": scaled(0.5),
    "grid_timeout": scaled(1.0),
}
"""Quicker than in production, so that another node delivers soon."""

CLIENTS: Final = 20
"""Sessions in each phase of a test."""


def metric(name: str) -> str:
    return f'{name}{{hook="crm"}}'


async def deliverer(stack: Stack, *nodes: str) -> str | None:
    """Tell which of some nodes delivers; None if none does."""
    for node in nodes:
        if metric("gateway_hook_behind_events") in await stack.metrics(node):
            return node
    return None


async def visit(stack: Stack, node: str, count: int = CLIENTS) -> set[str]:
    """Open sessions at a node and close them; returns their ids."""

    async def one(number: int) -> str:
        async with connect(stack.node_url(node), principal=f"p{number}") as session:
            return session.id

    return set(await asyncio.gather(*(one(number) for number in range(count))))


def subjects(receiver: HookReceiver, kind: str) -> set[str]:
    return {each["subject"] for each in receiver.of_type(kind)}


async def test_a_node_that_is_killed_between_the_answer_and_the_cursor_loses_nothing(
    tmp_path: Path, figures: Figures
) -> None:
    async with HookReceiver() as receiver:
        file = tmp_path / "hooks.toml"
        file.write_text(receiver.section(tmp_path), "utf-8")
        async with cluster(tmp_path, nodes=2, balancer=False, hooks=str(file), **SETTINGS) as stack:

            async def is_known() -> bool:
                return await deliverer(stack, "n1", "n2") is not None

            await eventually(is_known, "a node delivers")
            first = await deliverer(stack, "n1", "n2")
            assert first is not None
            other = "n2" if first == "n1" else "n1"
            sessions = await visit(stack, other)
            await eventually(lambda: sessions <= subjects(receiver, "session_closed"), "what happened was taken")
            before = len(receiver.ids)

            async def kill() -> None:
                receiver.before_answer = None
                await stack.kill_node(first)

            receiver.before_answer = kill
            sessions |= await visit(stack, other)
            await eventually(lambda: receiver.before_answer is None, "the node was killed with a request under way")
            sessions |= await visit(stack, other)
            await eventually(lambda: sessions <= subjects(receiver, "session_closed"), "nothing is missing")
            assert sessions <= subjects(receiver, "session_opened")
            again = len(receiver.ids) - len(set(receiver.ids))
            assert again > 0, "what was taken and not noted comes again, with the same ids"
            assert len(set(receiver.ids[:before])) == before, "nothing comes twice while all is well"
            assert receiver.of_type("gap") == []
            figures(f"{len(sessions)} sessions, {len(set(receiver.ids))} events, {again} of them came twice")


async def test_redis_is_restarted_while_a_receiver_is_down(tmp_path: Path) -> None:
    async with HookReceiver() as receiver:
        file = tmp_path / "hooks.toml"
        file.write_text(receiver.section(tmp_path), "utf-8")
        async with cluster(tmp_path, nodes=1, balancer=False, hooks=str(file), **SETTINGS) as stack:

            async def is_known() -> bool:
                return await deliverer(stack, "n1") is not None

            await eventually(is_known, "the node delivers")
            sessions = await visit(stack, "n1")
            await eventually(lambda: sessions <= subjects(receiver, "session_closed"), "what happened was taken")
            await receiver.stop()
            sessions |= await visit(stack, "n1")

            async def is_failing() -> bool:
                return (await stack.metrics("n1")).get(metric("gateway_hook_failures_total"), 0) > 0

            await eventually(is_failing, "the receiver was tried")
            await stack.grid.process.kill()
            await stack.restart_redis(GridRestart.AS_IT_WAS)

            async def is_back() -> bool:
                return (await stack.metrics("n1"))["gateway_grid_up"] == 1

            await eventually(is_back, "the node reaches the grid again")
            sessions |= await visit(stack, "n1")
            await receiver.start()
            await eventually(lambda: sessions <= subjects(receiver, "session_closed"), "nothing is missing")
            assert {each["data"]["reason"] for each in receiver.of_type("gap")} <= {"grid_lost_writes"}
