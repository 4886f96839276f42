"""Whole nodes that have backups: when all is copied, and a link that takes nothing."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import pytest

from gateway.app.cluster.mirror.source import MirrorSource
from gateway.core.types import NodeRef
from gateway.ports.peers import DOWN, LinkState, NoLink
from tests.support.nodes import TestNode, eventually

MOST_REFUSED = 100
"""Times that a node may try in vain to write a frame before it is said to hang: else the test would hang, too."""


def mirror_of(node: TestNode) -> MirrorSource:
    """Return what keeps the backup of a node that is to have one."""
    mirror = node.gateway.node.mirror
    assert mirror is not None
    return mirror


async def caught_up(node: TestNode, sessions: int = 1) -> None:
    """Wait until the backup has taken in all that there is to know of so many sessions at least."""
    mirror = mirror_of(node)

    def has_all() -> bool:
        log = mirror._log
        return (
            log is not None
            and mirror.is_whole
            and len(log) >= sessions
            and not log.waiting
            and not log._woken
            and not log._woken_later
            and log.acknowledged == log.sequence
        )

    await eventually(has_all)


class RefusingLink:
    """Within the block, the link of a node to its backup takes nothing.

    Args:
        node: which.
        to: its backup.
        error: by which the link says so. With ``NoLink`` it is down, and that has not been told yet.

    Attributes:
        refused: how often it was tried.
    """

    def __init__(self, node: TestNode, to: TestNode, error: NoLink) -> None:
        links = node.gateway.node.links
        assert links is not None
        self._links = links.links
        self._to = to.gateway.me
        self._error = error
        self._patch = pytest.MonkeyPatch()
        self.refused = 0

    def __enter__(self) -> Self:
        state, send = self._links.state, self._links.send

        def is_down(node: NodeRef) -> LinkState:
            return DOWN if type(self._error) is NoLink and node == self._to else state(node)

        def refuse(to: NodeRef, kind: str, record: bytes) -> int:
            if to != self._to:
                return send(to, kind, record)
            self.refused += 1
            assert self.refused < MOST_REFUSED, "it is tried again and again, and nothing else gets its turn"
            raise self._error

        self._patch.setattr(self._links, "state", is_down)
        self._patch.setattr(self._links, "send", refuse)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patch.undo()
