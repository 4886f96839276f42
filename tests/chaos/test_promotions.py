"""When the account takes the last writes of a grid for lost."""

from __future__ import annotations

from tests.chaos.account.forgotten import Forgotten
from tests.chaos.promotions import DEMOTED, Promotions
from tests.chaos.reader import Claims

ONE, OTHER = frozenset({7000}), frozenset({7001})


def test_nothing_is_lost_while_the_master_stays() -> None:
    promotions = Promotions("sentinel")
    for at in (1.0, 2.0):
        assert promotions.look(at, ONE, Claims(1, promoted=False)) == (False, None)
    assert promotions.count == 0


def test_what_was_written_since_the_look_before_may_be_lost() -> None:
    promotions = Promotions("cluster")
    promotions.look(1.0, ONE, Claims(1, promoted=False))
    assert promotions.look(2.0, OTHER, Claims(1, promoted=False)) == (True, Forgotten(1.0, 2.0 + DEMOTED))
    assert promotions.look(3.0, OTHER, Claims(1, promoted=True)) == (True, Forgotten(2.0, 3.0 + DEMOTED))
    assert promotions.count == 2


def test_a_master_that_was_replaced_may_take_writes_still() -> None:
    promotions = Promotions("sentinel")
    promotions.look(1.0, ONE, Claims(1, promoted=False))
    assert promotions.look(2.0, ONE, Claims(2, promoted=False)) == (False, Forgotten(1.0, 2.0 + DEMOTED))
    assert Promotions("cluster").look(2.0, ONE, Claims(3, promoted=False)) == (False, None)
