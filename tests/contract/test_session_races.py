"""The contract of ``SessionStore`` when several nodes act at the same time: each step is atomic."""

from __future__ import annotations

import asyncio
import random

import pytest

from gateway.core.types import NodeRef
from gateway.ports import Claimed, ClaimRefused, Fenced, Ownership, SessionChanges, SessionRecord
from tests.contract.examples import claim, ids_in_one_partition, ownership, session
from tests.contract.harness import Harness, node

NODES = ("n1", "n2", "n3")


@pytest.mark.promise("P3")
async def test_of_simultaneous_claims_of_one_attempt_exactly_one_wins(harness: Harness) -> None:
    """P3, one owner: the attempt that HAProxy repeated at another node is served once."""
    grids = {name: await harness.grid(name) for name in NODES}
    records = [session() for _ in range(20)]
    await asyncio.gather(*(grids["n1"].sessions.create(record) for record in records))
    results = await asyncio.gather(
        *(
            claim(grids[name], record, node(name), token_generation=1, attempt=1)
            for record in records
            for name in random.Random(record.id).sample(NODES, len(NODES))
        )
    )
    for index, record in enumerate(records):
        of_this = results[3 * index : 3 * index + 3]
        winners = [each for each in of_this if isinstance(each, Claimed)]
        losers = [each for each in of_this if isinstance(each, ClaimRefused)]
        assert (len(winners), len(losers)) == (1, 2)
        assert winners[0].record.epoch == 2
        assert await grids["n2"].sessions.find(record.id) == winners[0].record


async def test_each_of_many_claims_gets_an_epoch_of_its_own_and_the_last_one_owns(harness: Harness) -> None:
    """epoch: fencing token; grows by one per claim."""
    grids = {name: await harness.grid(name) for name in NODES}
    record = session()
    await grids["n1"].sessions.create(record)
    attempts = 30
    by: dict[int, NodeRef] = {attempt: node(NODES[attempt % 3]) for attempt in range(1, attempts + 1)}
    results = await asyncio.gather(
        *(claim(grids[owner.node], record, owner, token_generation=1, attempt=attempt) for attempt, owner in by.items())
    )
    won = {attempt: each for attempt, each in zip(by, results, strict=True) if isinstance(each, Claimed)}
    assert attempts in won, "the highest attempt is never stale"
    by_attempt = [won[attempt].record.epoch for attempt in sorted(won)]
    assert by_attempt == list(range(2, len(won) + 2)), (
        "one epoch per claim that won, and later attempts get higher ones"
    )
    found = await grids["n1"].sessions.find(record.id)
    assert found == won[attempts].record
    # Each winner but the last is fenced.
    for attempt, each in won.items():
        owner = by[attempt]
        write = grids[owner.node].sessions.change(
            Ownership(record.id, owner, each.record.epoch), SessionChanges(properties={"by": str(attempt)})
        )
        try:
            await write
        except Fenced:
            assert attempt != attempts
        else:
            assert attempt == attempts


async def test_steps_of_one_node_happen_in_the_order_in_which_they_were_started(harness: Harness) -> None:
    """Order: steps that one node starts for one session happen in the order in which they were started."""
    grid = await harness.grid()
    record = session()
    last = 50
    await grid.sessions.create(record)
    await asyncio.gather(
        *(
            grid.sessions.change(ownership(record), SessionChanges(selections=(f"+{number}",)))
            for number in range(last + 1)
        ),
    )
    found = await grid.sessions.find(record.id)
    assert found is not None
    assert found.selections == (f"+{last}",)


@pytest.mark.promise("P3")
async def test_a_claim_and_a_write_of_the_former_owner_never_mix(harness: Harness) -> None:
    """P3: every write for a session carries its epoch and the grid refuses an older one."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    for _ in range(20):
        record = session()
        await n1.sessions.create(record)
        changes = SessionChanges(selections=("+written/before/the/claim",))
        written, taken = await asyncio.gather(
            n1.sessions.change(ownership(record), changes),
            claim(n2, record, node("n2"), token_generation=1, attempt=1),
            return_exceptions=True,
        )
        assert isinstance(taken, Claimed)
        assert written is None or isinstance(written, Fenced)
        expected = changes.selections if written is None else ()
        found = await n1.sessions.find(record.id)
        assert found is not None
        assert found.selections == expected
        assert taken.record.selections == expected, "the claim's answer shows every write that came before it"


async def test_each_expired_session_is_in_exactly_one_answer(harness: Harness) -> None:
    """Any number of nodes may call this at the same time: each ended session is in exactly one answer."""
    grids = [await harness.grid(name) for name in NODES]
    records = [session(session_id=each, window=harness.short, connected=False) for each in ids_in_one_partition(40)]
    await asyncio.gather(*(grids[0].sessions.create(record) for record in records))
    await harness.advance(harness.short)
    answers = await asyncio.gather(
        *(grids[number % 3].sessions.expire(0, limit=7) for number in range(12)),
        *(grids[number].sessions.expire(0, limit=100) for number in range(3)),
    )
    answers.append(await grids[0].sessions.expire(0, limit=100))
    ended = [each.session for answer in answers for each in answer]
    assert sorted(ended) == sorted(record.id for record in records)


async def test_a_session_is_either_claimed_or_expired(harness: Harness) -> None:
    """expire: re-checked in the atomic step. / claim: SESSION_EXPIRED if the window ended."""
    n1, n2 = await harness.grid("n1"), await harness.grid("n2")
    records = [session(session_id=each, window=harness.short / 2) for each in ids_in_one_partition(30)]
    await asyncio.gather(*(n1.sessions.create(record) for record in records))
    await asyncio.gather(*(n1.sessions.disconnect(ownership(record)) for record in records))
    ended: set[str] = set()
    served: set[str] = set()

    async def come_back(record: SessionRecord) -> None:
        result = await claim(n2, record, node("n2"), token_generation=1, attempt=1)
        if isinstance(result, Claimed):
            served.add(record.id)

    for record in records:
        _, answer = await asyncio.gather(come_back(record), n1.sessions.expire(0, limit=100))
        ended.update(each.session for each in answer)
        await harness.advance(harness.short / 20)
    await harness.advance(harness.short)
    ended.update(each.session for each in await n1.sessions.expire(0, limit=100))
    assert not ended & served
    assert ended | served == {record.id for record in records}
    assert ended
