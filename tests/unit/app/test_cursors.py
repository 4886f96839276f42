"""Cursors of lists: what is written is read again, and whatever else is given is refused."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.app.administration.cursors import LONGEST_CURSOR, Place, from_cursor, to_cursor
from gateway.ports.administration import BadParameter

texts = st.none() | st.text(max_size=200)


@given(st.builds(Place, st.integers(0, 63), texts, texts))
def test_a_place_is_read_as_it_was_written(place: Place) -> None:
    cursor = to_cursor(place)

    assert from_cursor(cursor, partitions=64) == place
    assert cursor.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize("topic", ["\N{GRINNING FACE}" * 256, "é" * 512, '"' * 1024, "\\" * 1024])
def test_the_longest_topic_fits(topic: str) -> None:
    place = Place(63, "1" * 20, topic)

    assert len(to_cursor(place)) <= LONGEST_CURSOR
    assert from_cursor(to_cursor(place), partitions=64) == place


def test_no_cursor_is_the_beginning() -> None:
    assert from_cursor(None, partitions=64) == Place()


@given(st.text(max_size=60) | st.binary(max_size=40).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_whatever_is_given_is_a_place_or_refused(text: str) -> None:
    try:
        place = from_cursor(text, partitions=64)
    except BadParameter as refused:
        assert refused.name == "cursor"  # noqa: PT017 - either is right
    else:
        assert 0 <= place.partition < 64


@pytest.mark.parametrize(
    "content",
    [
        b"[64,null,null]",
        b"[-1,null,null]",
        b"[true,null,null]",
        b"[0,1,null]",
        b"[0,null]",
        b"{}",
        b'[0,"\\ud800",null]',
        b"[" * 3000,
    ],
)
def test_what_is_no_place_is_refused(content: bytes) -> None:
    with pytest.raises(BadParameter, match="begin again without one"):
        from_cursor(base64.urlsafe_b64encode(content).decode().rstrip("="), partitions=64)
