"""Each partition is some living node's."""

from __future__ import annotations

import pytest

from gateway.app.cluster.shares import share_of
from gateway.core.types import NodeRef

A, B, C = (NodeRef.parse(f"{name}:r1") for name in ("a", "b", "c"))


@pytest.mark.parametrize("alive", [(A,), (A, B), (A, B, C)])
def test_all_partitions_are_shared_out_once(alive: tuple[NodeRef, ...]) -> None:
    assert sorted(each for node in alive for each in share_of(node, alive, 64)) == list(range(64))


@pytest.mark.parametrize(("alive", "expected"), [((), [0, 1, 2, 3]), ((A, B), [0, 2])])
def test_who_is_not_among_them_takes_the_first_share(alive: tuple[NodeRef, ...], expected: list[int]) -> None:
    assert list(share_of(C, alive, 4)) == expected
