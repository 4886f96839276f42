"""A right is withdrawn on three processes over a real Redis: it is gone on each of them, and after one was killed (P2).

Each case of the matrix of permissions and ways back is in ``tests/integration/node``; this shows that the way there,
from a file and a signal, is as it was tried.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.client import Forbidden, SelectionsWithdrawn, Session, connect
from gateway.core.wire.codes import Outcome
from gateway.local.stack import Stack
from tests.cluster.crowds import Figures
from tests.support.faults import eventually
from tests.support.stack import cluster

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.promise("P2")]

SESSIONS_PER_NODE: Final = 20

POLICY: Final = """\
default = ["reader"]
[roles.reader]
select = ["prices/**", "users/${principal}/**"]
[roles.feed]
publish = ["**"]
[principals]
feed = ["feed"]
"""

SHORTER: Final = POLICY.replace("prices/**", "prices/public/**")


class Reader:
    """A client that notes what it is sent, and what is taken from it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.topics: list[tuple[str, Any]] = []
        self.withdrawn: list[SelectionsWithdrawn] = []
        self.withdrawn_at = 0.0

    async def follow(self) -> None:
        async for update in await self.session.subscribe("prices/**"):
            self.topics.append((update.topic, update.value))

    async def listen(self) -> None:
        async for notice in self.session.notices():
            if isinstance(notice, SelectionsWithdrawn):
                self.withdrawn.append(notice)
                self.withdrawn_at = time.monotonic()

    def has(self, topic: str, value: Any) -> bool:
        return (topic, value) in self.topics


def reload(stack: Stack) -> None:
    for node in stack.node_names:
        os.kill(stack.nodes[node].pid, signal.SIGHUP)


@pytest.fixture
async def background() -> AsyncIterator[Callable[[Awaitable[None]], None]]:
    tasks: list[asyncio.Future[None]] = []
    yield lambda work: tasks.append(asyncio.ensure_future(work))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.promise("P8")
async def test_a_right_that_is_withdrawn_is_gone_on_every_node_and_after_one_was_killed(
    tmp_path: Path, figures: Figures, background: Callable[[Awaitable[None]], None]
) -> None:
    policy = tmp_path / "policy.toml"
    write(policy, POLICY)
    async with cluster(tmp_path, balancer=False, policy=policy, backoff_initial=0.05) as stack:
        readers = [
            Reader(await connect(others_first(stack, node), principal=f"user-{node}-{number}"))
            for node in stack.node_names
            for number in range(SESSIONS_PER_NODE)
        ]
        feed = await connect(stack.node_url("n3"), principal="feed")
        for reader in readers:
            background(reader.follow())
            background(reader.listen())
        await feed.publish("prices/secret/x", "before")
        await eventually(lambda: all(each.has("prices/secret/x", "before") for each in readers), "all see the secret")

        write(policy, SHORTER.replace("roles.feed", "rolls.feed"))
        reload(stack)
        await eventually(
            lambda: all("policy_kept" in stack.log_of(node).read_text() for node in stack.node_names),
            "every node refuses the policy with an error",
        )
        await feed.publish("prices/secret/x", "still")
        await eventually(lambda: all(each.has("prices/secret/x", "still") for each in readers), "nothing has changed")

        write(policy, SHORTER)
        began = time.monotonic()
        reload(stack)
        await eventually(lambda: all(each.withdrawn for each in readers), "all are told")
        slowest = max(each.withdrawn_at for each in readers) - began
        assert {(each.withdrawn[0].withdrawn, each.withdrawn[0].selections) for each in readers} == {
            (("prices/**",), ("+prices/public/**",))
        }
        await publish_and_see(feed, readers, "after")

        await stack.kill_node("n1")
        moved = readers[:SESSIONS_PER_NODE]
        await eventually(lambda: all(each.session.node != "n1" for each in moved), "all have failed over")
        await publish_and_see(feed, readers, "failed over")
        for reader in moved:
            assert [each.outcome async for each in first(reader.session)] == [Outcome.FAILED_OVER]
            with pytest.raises(Forbidden, match="'prices/public/"):
                await reader.session.subscribe("prices/*/x")
            assert len(reader.withdrawn) == 1  # what was written does not have to be withdrawn again
        for each in (*(reader.session for reader in readers), feed):
            await each.close()
        figures(f"{len(readers)} sessions on 3 nodes told {slowest * 1000:.0f} ms after SIGHUP, none dropped")


async def publish_and_see(feed: Session, readers: Sequence[Reader], value: str) -> None:
    """Publish what is secret, then what is not: whoever has the second was not sent the first."""
    await feed.publish("prices/secret/x", value)
    await feed.publish("prices/public/x", value)
    await eventually(lambda: all(each.has("prices/public/x", value) for each in readers), f"all see {value!r}")
    assert not [each for each in readers if each.has("prices/secret/x", value)]


async def first(session: Session) -> AsyncIterator[Any]:
    async for recovery in session.recoveries():
        yield recovery
        return


def others_first(stack: Stack, node: str) -> list[str]:
    """The URLs of all nodes, that of *node* first."""
    return [stack.node_url(node), *(stack.node_url(other) for other in stack.node_names if other != node)]


def write(file: Path, text: str) -> None:
    file.write_text(text, "utf-8")
