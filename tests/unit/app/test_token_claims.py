"""What follows from the claims of a session token."""

from __future__ import annotations

import pytest

from gateway.core.types import GridGeneration, SessionId, TokenGeneration
from gateway.ports import TokenClaims


@pytest.mark.parametrize(
    ("seen", "adopted", "expected"),
    [(None, 1, None), (1, 2, None), (2, 2, None), (3, 2, 3)],
    ids=["does-not-say", "older", "the-same", "later"],
)
def test_a_node_is_behind_a_token_whose_holder_may_have_seen_a_later_generation(
    seen: int | None, adopted: int, expected: int | None
) -> None:
    claims = TokenClaims(
        session=SessionId("s"),
        token_generation=TokenGeneration(1),
        expires=0.0,
        seen_generation=None if seen is None else GridGeneration(seen),
    )
    assert claims.seen_after(GridGeneration(adopted)) == expected
