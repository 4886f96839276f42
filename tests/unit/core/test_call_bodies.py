"""Bodies of calls: what is read, what is refused and why, and what is written."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.types import EventId, Version
from gateway.core.wire.codec.calls import MOST_PUBLISHES, Outcome, read_publishes, write_outcomes, write_value
from gateway.core.wire.codes import ErrorCode
from gateway.core.wire.errors import RequestRefused

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=10,
)


@given(st.lists(st.tuples(st.text("ab/", min_size=1), JSON), min_size=1, max_size=20))
def test_what_is_asked_for_is_read(items: list[tuple[str, object]]) -> None:
    body = json.dumps({"publish": [{"topic": topic, "value": value} for topic, value in items]}).encode()
    publishes, as_list = read_publishes(body)
    assert as_list
    assert [(each.request, each.topic, json.loads(each.value)) for each in publishes] == [
        (number, topic, value) for number, (topic, value) in enumerate(items, 1)
    ]


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_anything_is_read_or_refused(body: bytes) -> None:
    with suppress(RequestRefused):
        publishes, _ = read_publishes(body)
        assert publishes


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"publish": [{"topic": "a", "value": 1}] * (MOST_PUBLISHES + 1)}, "1 to 1000"),
        ({"publish": [{"topic": "a", "value": 1}, {"topic": 7, "value": 1}]}, "publish[1]: 'topic'"),
        (
            {"publish": [{"topic": "a", "value": 1}, {"topic": "a", "valeu": 1}]},
            "publish[1]: there is no member 'valeu'",
        ),
        ({"topic": "a"}, "'value' is missing"),
        ({"topic": "a", "value": [[]], "qos": 3}, "'qos'"),
        ({"topic": "a", "value": [[]], "ttl": "3"}, "'ttl'"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_where(content: object, named: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        read_publishes(json.dumps(content).encode())
    assert named in str(refused.value)


def test_answers_tell_each_topic() -> None:
    outcomes = [
        Outcome("a", Version(7), EventId("1-1-7")),
        Outcome("b", Version(8), EventId("1-1-8"), True),
        Outcome("c", code=ErrorCode.TOO_MANY_BYTES, message="no room"),
    ]
    assert json.loads(write_outcomes(outcomes, as_list=True)) == {
        "results": [
            {"topic": "a", "version": 7, "event": "1-1-7"},
            {"topic": "b", "version": 8, "event": "1-1-8", "repeated": True},
            {"topic": "c", "error": {"code": "too_many_bytes", "message": "no room"}},
        ]
    }
    assert json.loads(write_outcomes(outcomes[:1], as_list=False)) == {"topic": "a", "version": 7, "event": "1-1-7"}
    assert json.loads(write_value("t", Version(1), EventId("e"), b'{"x":[1]}'))["value"] == {"x": [1]}
