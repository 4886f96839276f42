"""Names as segments of URLs, which nobody takes out of a path."""

from __future__ import annotations

from urllib.parse import unquote, urljoin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from gateway.core.url_segments import from_segment, to_segment

NAMES = st.one_of(st.text("/.a", min_size=1, max_size=6), st.text(min_size=1).filter(str.isprintable))


@given(NAMES)
def test_a_name_is_read_as_it_was_written_and_stays_a_segment(name: str) -> None:
    segment = to_segment(name)
    assert "/" not in segment
    assert from_segment(unquote(segment)) == name
    address = f"http://a/v1/topics/{segment}/x"
    assert urljoin("http://a/", address) == address
    assert URL(address).path_safe.count("/") == 4


@pytest.mark.parametrize(
    ("name", "segment"),
    [(".", "%2F."), ("..", "%2F.."), ("/..", "%2F%2F.."), ("...", "..."), ("a/..", "a%2F.."), ("/x", "%2Fx")],
)
def test_only_names_of_dots_are_written_otherwise(name: str, segment: str) -> None:
    assert to_segment(name) == segment


def test_plain_dots_are_taken_as_they_are() -> None:
    assert [from_segment(each) for each in (".", "..")] == [".", ".."]
