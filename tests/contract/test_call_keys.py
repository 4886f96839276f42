"""The contract of ``CallKeyStore``: a key is bound once, for everybody, and forgotten after its time."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.types import SessionId
from tests.contract.harness import Harness

NAME = SessionId("$call-AAAAAAAAAAAAAAAAAAAAAA")


@pytest.mark.promise("P5")
async def test_a_key_is_bound_to_the_first_body_for_everybody(harness: Harness) -> None:
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    assert await n1.call_keys.bind(NAME, b"first") == b"first"
    assert await n2.call_keys.bind(NAME, b"second") == b"first"
    assert await n1.call_keys.bind(NAME, b"first") == b"first"
    assert await n2.call_keys.bind(SessionId("$call-another"), b"second") == b"second"


@pytest.mark.promise("P5")
async def test_of_many_at_once_one_is_the_first(harness: Harness) -> None:
    grids = [await harness.grid(name) for name in ("n1", "n2", "n3")]
    bodies = [b"%d" % number for number in range(12)]
    told = await asyncio.gather(*(grids[place % 3].call_keys.bind(NAME, body) for place, body in enumerate(bodies)))
    assert len(set(told)) == 1
    assert told[0] in bodies
