"""Tables of what clients are told have a line for each thing that may have to be told."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import pytest

from gateway.app.calls import streams
from gateway.app.requests import asking, transacting
from gateway.app.session.stream_session import StreamEnd
from gateway.core.destinations import limits
from gateway.core.destinations.limits import Kind
from gateway.ports import AnswerState, AskState, TransactionRefused


@pytest.mark.parametrize(
    ("table", "told", "besides"),
    [
        (transacting.REFUSALS, TransactionRefused, set()),
        (asking._REFUSALS, AskState, {AskState.PUT, AskState.FORGOTTEN}),
        (asking._ENDS, AnswerState, {AnswerState.WAITING, AnswerState.VALUE, AnswerState.FAILED}),
        (streams.MESSAGES, StreamEnd, {StreamEnd.LEFT, StreamEnd.SLOW}),
        (limits.LIMITS, Kind, set()),
        (limits._DEFAULTS, Kind, set()),
    ],
)
def test_each_reason_has_its_words(table: Mapping[Enum, object], told: type[Enum], besides: set[Enum]) -> None:
    """Else the node fails on a request that it was to refuse, and its client is told ``internal``."""
    assert set(table) == set(told) - besides
