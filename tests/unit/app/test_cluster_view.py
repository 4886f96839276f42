"""Each partition is some living node's."""

from __future__ import annotations

import pytest

from gateway.app.runtime.cluster_view import ClusterView
from gateway.core.types import NodeRef
from gateway.ports import LeaseTable, Master

A, B, C = (NodeRef.parse(f"{name}:r1") for name in ("a", "b", "c"))


def view(me: NodeRef, alive: tuple[NodeRef, ...], master: Master | None = None) -> ClusterView:
    made = ClusterView(me)
    made.table = LeaseTable(alive, (), master=master)
    return made


@pytest.mark.parametrize("alive", [(A,), (A, B), (A, B, C)])
def test_all_partitions_are_shared_out_once(alive: tuple[NodeRef, ...]) -> None:
    assert sorted(each for node in alive for each in view(node, alive).share(64)) == list(range(64))


@pytest.mark.parametrize(("alive", "expected"), [((), [0, 1, 2, 3]), ((A, B), [0, 2])])
def test_who_is_not_among_them_takes_the_first_share(alive: tuple[NodeRef, ...], expected: list[int]) -> None:
    assert list(view(C, alive).share(4)) == expected


def test_nobody_is_there_before_the_first_look() -> None:
    fresh = ClusterView(A)
    assert fresh.alive == ()
    assert fresh.master is None
    assert not fresh.is_master


def test_one_node_is_the_master() -> None:
    master = Master(B, 1)
    assert [view(me, (A, B), master).is_master for me in (A, B)] == [False, True]


def test_this_node_counts_whether_or_not_it_has_a_lease() -> None:
    assert view(A, (A, B)).nodes == view(A, (B,)).nodes == [A, B]
    assert view(C, ()).nodes == [C]
