"""Many items are taken in portions, between which others have a turn of the loop (P20)."""

from __future__ import annotations

import asyncio

import pytest

from gateway.app.runtime.portions import portions


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (0, []),
        (2, [(0, [0, 1])]),
        (3, [(0, [0, 1, 2])]),
        (7, [(0, [0, 1, 2]), (1, [3, 4, 5]), (2, [6])]),
    ],
)
async def test_each_portion_has_a_turn_of_its_own(items: int, expected: list[tuple[int, list[int]]]) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    waiting = asyncio.create_task(others())
    found = [(turns, portion) async for portion in portions(range(items), 3)]
    waiting.cancel()
    assert found == expected
    assert turns == items // 3, "others have a turn after each full portion, and after no other"


async def test_items_are_asked_for_when_their_turn_has_come() -> None:
    """So an iterator can leave out who has been seen to meanwhile."""
    done: set[int] = set()
    found = []
    async for portion in portions((each for each in range(8) if each not in done), 3):
        found.append(portion)
        asyncio.get_running_loop().call_soon(done.update, [4, 5])  # by somebody else, in the turn between
    assert found == [[0, 1, 2], [3, 6, 7]]
