"""Of which trees with presence a session is a member; see ``presence``."""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.core.destinations.table import DestinationTable
from gateway.core.topics.selections import Selections
from gateway.core.types import TopicPath


class Membership(NamedTuple):
    """What was found for one list.

    Attributes:
        selections: the list.
        revision: of the table that was asked.
        trees: those of which its session is a member.
    """

    selections: Selections
    revision: int
    trees: frozenset[TopicPath]


NO_TREES: Final[frozenset[TopicPath]] = frozenset()
"""Of a session that is a member nowhere, as nearly all are where nobody asks for presence."""


def trees_of(selections: Selections, table: DestinationTable) -> frozenset[TopicPath]:
    """Tell of which trees a session with these selections is a member."""
    if not table.has_presence:
        return NO_TREES
    return frozenset(tree for each in selections.entries if each.selects for tree in table.trees(each.selector))


def trees_after(
    before: Selections, trees: frozenset[TopicPath], after: Selections, table: DestinationTable
) -> frozenset[TopicPath]:
    """Tell the same of a list that was made of another one; mostly at the cost of what has changed.

    Args:
        before: the other one.
        trees: those of the other one.
        after: the list.
        table: what paths are.
    """
    if not table.has_presence:
        return NO_TREES
    changes = after.changes_since(before)
    if changes is None or (changes.removed and trees):
        return trees_of(after, table)
    return trees.union(tree for each in changes.added if each.selects for tree in table.trees(each.selector))
