"""Strategies for topics and selectors over a tiny alphabet, and an oracle that is too simple to be wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from hypothesis import strategies as st

from gateway.core.topics.topics import parse_topic
from gateway.core.types import TopicPath

LETTERS = ("a", "b")
"""What selectors are made of in these tests; two are enough for a literal to be the wrong one."""

SYSTEM = "$r"
"""A segment that begins with the sign of the system: in the first place no wildcard stands for it."""

FRESH = "x"
"""A segment that occurs in no selector here, as a topic always can have one: the alphabet of segments is endless."""


def selector_texts(*, max_segments: int = 6, max_anys: int = 3) -> st.SearchStrategy[str]:
    """Selectors as users write them, canonical or not."""
    return (
        st.lists(st.sampled_from((*LETTERS, SYSTEM, "*", "**")), min_size=1, max_size=max_segments)
        .filter(lambda segments: segments.count("**") <= max_anys)
        .map("/".join)
    )


def topics(*, max_segments: int = 6) -> st.SearchStrategy[TopicPath]:
    return st.lists(st.sampled_from((*LETTERS, SYSTEM, FRESH)), min_size=1, max_size=max_segments).map(
        lambda segments: parse_topic("/".join(segments))
    )


def all_topics(*, max_segments: int) -> list[TopicPath]:
    """Every topic over the alphabet up to a length."""
    return [
        parse_topic("/".join(segments))
        for length in range(1, max_segments + 1)
        for segments in product((*LETTERS, SYSTEM, FRESH), repeat=length)
    ]


def all_selector_texts(*, max_segments: int) -> list[str]:
    """Every selector over the alphabet up to a length, canonical or not."""
    return [
        "/".join(segments)
        for length in range(1, max_segments + 1)
        for segments in product((*LETTERS, SYSTEM, "*", "**"), repeat=length)
    ]


def naive_matches(selector: str, topic: str) -> bool:
    """The definition of matching, word for word, in exponential time."""
    pattern = selector.split("/")
    return not (topic.startswith("$") and pattern[0] in {"*", "**"}) and _naive(pattern, topic.split("/"))


def _naive(pattern: Sequence[str], segments: Sequence[str]) -> bool:
    if not pattern:
        return not segments
    if pattern[0] == "**":
        return any(_naive(pattern[1:], segments[used:]) for used in range(len(segments) + 1))
    return bool(segments) and pattern[0] in {"*", segments[0]} and _naive(pattern[1:], segments[1:])


def instances(selector: str, *, most: int) -> Iterator[TopicPath]:
    """Topics that a selector matches: fresh segments for each ``*``, and 0 to *most* of them for each ``**``.

    What another selector matches of these it matches of all: a fresh segment is the hardest to match.
    """
    choices = [
        [[FRESH] * count for count in range(most + 1)] if segment == "**" else [[FRESH if segment == "*" else segment]]
        for segment in selector.split("/")
    ]
    for choice in product(*choices):
        path = "/".join(segment for part in choice for segment in part)
        if path and naive_matches(selector, path):
            yield TopicPath(path)
