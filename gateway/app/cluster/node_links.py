"""This node's links to the others: they follow the node table, and what comes over them is handed to who asked for it.

Nothing said over a link gives a right: whoever takes something from here treats it as a copy or a hint, and asks the
grid before it acts as an owner (P3).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from gateway.app.context import Context
from gateway.core.types import GridGeneration, NodeId, NodeRef
from gateway.core.wire.errors import InvalidExport
from gateway.ports import GridUnavailable
from gateway.ports.peers import Down, LinkState, PeerLinks, PeerPlace, Question, Record, Up

CLUSTER_BYTES: Final = 9
"""Random bytes of the id of a new cluster: two clusters shall not share one by chance."""

Answer = Callable[[bytes, NodeRef], Coroutine[Any, Any, bytes]]
"""Gets the body of a question and the node that asks; returns the body of the answer."""


class NodeLinks:
    """Has a link to every node that lives and advertises one.

    Args:
        context: of the node.
        links: the links themselves.
        alive: the nodes that hold a lease, as this one last saw them; itself among them.

    Attributes:
        links: as given.
    """

    def __init__(self, context: Context, links: PeerLinks, alive: Callable[[], tuple[NodeRef, ...]]) -> None:
        self.links = links
        self._me = context.me
        self._background = context.background
        self._grid = context.grid
        self._renew = context.parameters.renew
        self._alive = alive
        self._cluster = ""
        self._asked_in = GridGeneration(0)
        self._seen: tuple[NodeRef, ...] = ()
        self._up: set[NodeRef] = set()
        self._incomplete = True
        self._look_now = asyncio.Event()
        self._answers: dict[str, Answer] = {}
        self._records: dict[str, Callable[[Record], None]] = {}
        self._changes: list[Callable[[Up | Down], None]] = []

    # --- For use cases ------------------------------------------------------------------------------------------------

    def on_question(self, kind: str, answer: Answer) -> None:
        """Have questions of a kind answered by *answer*, in the background; those of nobody are declined.

        What it raises fails the question, so that nobody waits for it: ``InvalidExport``, if the body is nothing of the
        kind; anything else is a bug, and told.
        """
        self._answers[kind] = answer

    def on_record(self, kind: str, take: Callable[[Record], None]) -> None:
        """Have records of a kind taken by *take*, which does not wait; those of nobody are ignored."""
        self._records[kind] = take

    def on_change(self, tell: Callable[[Up | Down], None]) -> None:
        """Have *tell* told of links that are up or down, in order with what comes over them; it does not wait."""
        self._changes.append(tell)

    def state(self, node: NodeRef) -> LinkState:
        """Tell how the link to a node is."""
        return self.links.state(node)

    def is_linked(self, to: NodeId | None = None) -> bool:
        """Tell whether there is a link to a node by its name, or to any."""
        return any(to in {None, node.node} for node in self._up)

    # --- For the node -------------------------------------------------------------------------------------------------

    def look_soon(self) -> None:
        """The node table may have changed."""
        self._look_now.set()

    async def follow(self) -> None:
        """Keep the links told of the node table, for ever. The grid is asked only when that has changed."""
        while True:
            self._look_now.clear()
            with suppress(GridUnavailable):
                await self._look()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._renew):
                    await self._look_now.wait()

    async def take(self) -> None:
        """Hand out what comes over the links, for ever."""
        async for event in self.links.events():
            match event:
                case Question():
                    answer = self._answers.get(event.kind)
                    if answer is None:
                        event.decline()
                    else:
                        self._background.once(self._answer(event, answer), f"answer-{event.kind}")
                case Record():
                    take = self._records.get(event.kind)
                    if take is not None:
                        take(event)
                case _:
                    if isinstance(event, Up):
                        self._up.add(event.peer)
                    else:
                        self._up.discard(event.peer)
                    for tell in self._changes:
                        tell(event)

    async def _answer(self, question: Question, answer: Answer) -> None:
        try:
            question.answer(await answer(question.body, question.peer))
        except InvalidExport:
            question.fail()
        except BaseException:
            question.fail()
            raise

    async def _look(self) -> None:
        alive, generation = self._alive(), self._grid.generation
        if alive == self._seen and generation == self._asked_in and not self._incomplete:
            return
        if generation != self._asked_in:
            # A grid that lost all data gets the id back.
            self._cluster = await self._grid.nodes.cluster(self._cluster or secrets.token_urlsafe(CLUSTER_BYTES))
            self._asked_in = generation
        entries = [entry for entry in await self._grid.nodes.entries() if entry.alive and entry.node != self._me]
        self._seen = alive
        # A node that has just joined tells of itself a moment later.
        self._incomplete = any(entry.report is None for entry in entries)
        self.links.meet(
            self._cluster,
            {
                entry.node: PeerPlace("", 0.0)
                if entry.report is None
                else PeerPlace(entry.report.link, entry.report.started)
                for entry in entries
            },
        )
