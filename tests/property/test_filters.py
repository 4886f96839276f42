"""The filter language: what is written is read as it was, and nothing else than an error comes of nonsense."""

from __future__ import annotations

import fnmatch
import re

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.policy.filters import All, Any, Expression, Has, InvalidFilter, Is, Like, Not, OneOf, parse

names = st.text(min_size=1, max_size=6)
texts = st.text(max_size=6)
singles: st.SearchStrategy[Expression] = st.one_of(
    st.builds(Is, names, texts),
    st.builds(OneOf, names, st.lists(texts, min_size=1, max_size=3).map(tuple)),
    st.builds(Like, names, texts),
    st.builds(Has, names),
)


def _joined(children: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(children, min_size=2, max_size=3)
    return st.one_of(
        children.map(Not),
        several.map(lambda parts: All(tuple(i for p in parts for i in (p.parts if isinstance(p, All) else (p,))))),
        several.map(lambda parts: Any(tuple(i for p in parts for i in (p.parts if isinstance(p, Any) else (p,))))),
    )


expressions = st.recursive(singles, _joined, max_leaves=8)
words = st.sampled_from(
    ["and", "or", "not", "is", "in", "like", "has", "(", ")", ",", "'x'", "'", '"', "a", "$b", "\\", "\n", "é", "\x00"]
)


@given(expressions)
def test_the_canonical_text_is_read_as_what_it_was_written_from(expression: Expression) -> None:
    assert parse(str(expression)) == expression


@given(expressions, st.dictionaries(names, texts, max_size=4))
def test_a_filter_holds_or_its_negation_does(expression: Expression, properties: dict[str, str]) -> None:
    assert expression.holds(properties) is not Not(expression).holds(properties)


@given(st.one_of(st.text(max_size=40), st.lists(words, max_size=12).map(" ".join)))
def test_whatever_is_written_is_a_filter_or_refused_with_a_place_in_it(text: str) -> None:
    read, refused = _read(text)
    if read is not None:
        assert parse(str(read)) == read
    else:
        assert refused is not None
        assert 1 <= refused.column <= len(text) + 1
        assert refused.reason


def _read(text: str) -> tuple[Expression | None, InvalidFilter | None]:
    try:
        return parse(text), None
    except InvalidFilter as refused:
        return None, refused


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=8))
def test_patterns_match_as_those_of_shells(pattern: str, text: str) -> None:
    expected = re.fullmatch(fnmatch.translate(pattern), text) is not None

    assert Like("name", pattern).holds({"name": text}) is expected
