"""What unanswered requests weigh, and who has to wait for them."""

from __future__ import annotations

import pytest

from gateway.core.pacing.workload import REQUEST_BYTES, Workload, weight
from gateway.core.types import RequestNumber
from gateway.core.wire.packets import Authenticate, Bye, ClientRequest, Publish, SetProperties, Subscribe, Unsubscribe
from gateway.core.wire.value_packets import ReadValues

ONE = RequestNumber(1)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (Publish(ONE, "a/b", b"x" * 1000), 1003),
        (Subscribe(ONE, "s" * 500), 500),
        (Unsubscribe(ONE, "s" * 500, keep=("k" * 300, "l" * 200)), 1000),
        (SetProperties(ONE, {"name": "v" * 100, "gone": None}), 108),
        (Authenticate(ONE, secret="s" * 800, principal="p" * 20), 820),
        (ReadValues(ONE, "s" * 500, after="a" * 300), 800),
        (ReadValues(ONE, "s" * 500), 500),
        (Bye("over"), 0),
    ],
)
def test_a_request_weighs_its_texts_and_what_is_made_of_it(request_: ClientRequest | Bye, text: int) -> None:
    assert text + REQUEST_BYTES <= weight(request_) <= text + 2 * REQUEST_BYTES


def is_exceeded(load: Workload) -> bool:
    return load.is_exceeded


def test_only_those_wait_that_have_more_than_an_equal_share_of_too_much() -> None:
    load = Workload(1000)
    for held in (700, 290, 10):
        load.change(0, held)
    assert not is_exceeded(load)
    assert not load.exceeded_by(700), "there is room"
    load.change(10, 20)
    assert is_exceeded(load)
    assert load.exceeded_by(700)
    assert not load.exceeded_by(290)
    assert not load.exceeded_by(20)
    load.change(700, 0)
    assert (load.bytes, load.holders) == (310, 2)
    assert not load.exceeded_by(290)


def test_zero_sets_no_limit() -> None:
    load = Workload(0)
    load.change(0, 10**12)
    assert not load.is_exceeded
    assert not load.exceeded_by(10**12)
