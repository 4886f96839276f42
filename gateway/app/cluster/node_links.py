"""This node's links to the others: they follow the node table, and what comes over them is handed to who asked for it.

Nothing said over a link gives a right: whoever takes something from here treats it as a copy or a hint, and asks the
grid before it acts as an owner (P3).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

from gateway.app.context import Context
from gateway.core.types import GridGeneration, NodeId, NodeRef
from gateway.core.wire.errors import InvalidExport
from gateway.ports import GridUnavailable, LeaseTable, NodeEntry
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

    Attributes:
        links: as given.
    """

    def __init__(self, context: Context, links: PeerLinks) -> None:
        self.links = links
        self._me = context.me
        self._background = context.background
        self._grid = context.grid
        self._clock = context.clock
        self._renew = context.parameters.renew
        self._grace = context.parameters.restore_grace
        self._nodes = context.cluster
        self._cluster = ""
        self._asked_in = GridGeneration(0)
        self._read_in = GridGeneration(0)
        self._seen: tuple[NodeRef, ...] = ()
        self._listed: dict[NodeRef, PeerPlace] = {}
        self._awaited: dict[NodeRef, PeerPlace] = {}
        self._await_until = 0.0
        self._up: dict[NodeRef, frozenset[str]] = {}
        """With what both nodes can do."""
        self._domains: dict[NodeRef, str] = {}
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

    def domains(self, feature: str) -> dict[NodeRef, str]:
        """Tell the failure domains of all nodes to which there is a link, and that have a feature.

        Of a link that has broken, it may not have been told yet: it waits its turn behind what came over the link.
        """
        return {
            node: self._domains.get(node, "")
            for node, features in self._up.items()
            if feature in features and self.links.state(node).up
        }

    # --- For the node -------------------------------------------------------------------------------------------------

    def look_soon(self, _table: LeaseTable | None = None) -> None:
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
                        self._up[event.peer] = event.features
                    else:
                        self._up.pop(event.peer, None)
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
        alive, generation = self._nodes.alive, self._grid.generation
        if alive == self._seen and generation == self._read_in and not self._incomplete:
            return
        if generation != self._asked_in:
            # A grid that lost all data gets the id back.
            self._cluster = await self._grid.nodes.cluster(self._cluster or secrets.token_urlsafe(CLUSTER_BYTES))
            self._asked_in = generation
        entries = {entry.node: entry for entry in await self._grid.nodes.entries() if entry.alive}
        known = self._listed | self._awaited
        if generation != self._read_in:
            # They live as well as before, and have yet to join the grid that has lost writes.
            self._awaited, self._await_until = known, self._clock.monotonic() + self._grace
        # The leases were looked at a moment ago; who has joined since is there, too.
        there = {*alive, *entries} - {self._me}
        listed = {node: _place(entries.get(node), known=known.get(node)) for node in there}
        missing = self._missing(entries)
        self._seen, self._read_in, self._listed, self._awaited = alive, generation, listed, missing
        # A node that has just joined tells of itself a moment later.
        self._domains = {
            node: entry.report.failure_domain for node, entry in entries.items() if entry.report is not None
        }
        unreported = any(entry.report is None for entry in entries.values())
        self._incomplete = unreported or bool(missing) or entries.keys() != set(alive)
        self.links.meet(self._cluster, missing | listed)

    def _missing(self, entries: Mapping[NodeRef, NodeEntry]) -> dict[NodeRef, PeerPlace]:
        """List the nodes that are expected still, and are not there."""
        if self._clock.monotonic() >= self._await_until:
            return {}
        return {node: place for node, place in self._awaited.items() if node not in entries}


def _place(entry: NodeEntry | None, *, known: PeerPlace | None) -> PeerPlace:
    """Tell where the link of a node is; of one that has not told it in this grid, where it was."""
    if entry is not None and entry.report is not None:
        return PeerPlace(entry.report.link, entry.report.started)
    return PeerPlace("", 0.0) if known is None else known
