import pytest

from gateway.core.policy.filters import MAX_CHARACTERS, MAX_DEPTH, Any, InvalidFilter, Is, Not, parse

ALICE = {"$principal": "alice", "$node": "n1", "$connected": "true", "team": "fx", "desk": "it's", "odd name": "x"}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("team is 'fx'", True),
        ("team is 'FX'", False),
        ("team is not 'fx'", False),
        ("absent is 'fx'", False),
        ("absent is not 'fx'", True),
        ("has team", True),
        ("has absent", False),
        ("not has absent", True),
        ("team in ('rates', 'fx')", True),
        ("team not in ('rates', 'fx')", False),
        ("absent in ('')", False),
        ("$principal like 'al*'", True),
        ("$principal like 'a?ice'", True),
        ("$principal like '*'", True),
        ("$principal like ''", False),
        ("$principal like '*e*'", True),
        ("$principal like 'alic'", False),
        ("$principal not like '*z*'", True),
        ("absent like '*'", False),
        ("desk is 'it\\'s'", True),
        ("\"odd name\" is 'x'", True),
        ("$principal is 'alice' and team is 'fx' or not $node is 'n1'", True),
        ("$principal is 'bob' and team is 'fx' or not $node is 'n1'", False),
        # and binds more strongly than or, not more strongly than and
        ("team is 'fx' or team is 'x' and team is 'y'", True),
        ("(team is 'fx' or team is 'x') and team is 'y'", False),
        ("not team is 'x' and team is 'y'", False),
        ("not (team is 'x' and team is 'y')", True),
        ("android is 'x' or island is 'y' or notes is 'z'", False),
        ("\t team\nis 'fx'  ", True),
    ],
)
def test_what_holds(text: str, holds: bool) -> None:
    assert parse(text).holds(ALICE) is holds


def test_a_star_in_a_pattern_can_be_taken_literally() -> None:
    assert parse(r"rate like '5\\*'").holds({"rate": "5*"})
    assert not parse(r"rate like '5\\*'").holds({"rate": "55"})


def test_a_pattern_with_many_stars_takes_no_time() -> None:
    assert not parse("a like '" + "*a" * 60 + "b'").holds({"a": "a" * 1024})


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("(team is 'fx')", "team is 'fx'"),
        ("team  is  not 'fx'", "not team is 'fx'"),
        ("a is 'x' and (b is 'y' and c is 'z')", "a is 'x' and b is 'y' and c is 'z'"),
        ("a is 'x' or (b is 'y' or c is 'z')", "a is 'x' or b is 'y' or c is 'z'"),
        ("(a is 'x' or b is 'y') and c is 'z'", "(a is 'x' or b is 'y') and c is 'z'"),
        ("not not a is 'x'", "not not a is 'x'"),
        ("\"and\" is '\\u0041\\n'", "\"and\" is 'A\\n'"),
        ("a in('x','y')", "a in ('x', 'y')"),
    ],
)
def test_the_canonical_text(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical


def test_what_is_read_is_a_value() -> None:
    assert parse("a is 'x' or not b is 'y'") == Any((Is("a", "x"), Not(Is("b", "y"))))


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("", 1, "the filter ends where not, has, ( or a property is expected"),
        ("team", 5, "the filter ends where not, is, in or like is expected"),
        ("team is", 8, "the filter ends where not or a text in single quotes is expected"),
        ("team is fx", 9, "fx stands where not or a text in single quotes is expected; write 'fx'"),
        ("team = 'fx'", 6, "= is not an operator; there are is, is not, in, not in, like, not like, has"),
        ("team is 'fx", 9, "the quote ' is not closed"),
        ("team is 'fx' and", 17, "the filter ends where not, has, ( or a property is expected"),
        ("team is 'fx')", 13, ") stands where the end is expected"),
        (
            "and is 'x'",
            1,
            'and stands where not, has, ( or a property is expected; a property of that name is written "and"',
        ),
        ("team in ()", 10, ") stands where a text in single quotes is expected"),
    ],
)
def test_an_error_names_the_place_and_what_is_expected(text: str, column: int, reason: str) -> None:
    with pytest.raises(InvalidFilter) as raised:
        parse(text)

    assert (raised.value.column, raised.value.reason) == (column, reason)


def test_an_error_points_at_the_place() -> None:
    with pytest.raises(InvalidFilter) as raised:
        parse("team is fx")

    assert str(raised.value).splitlines()[1:] == ["  team is fx", "          ^"]


def test_an_error_in_a_long_filter_shows_its_surroundings_alone() -> None:
    with pytest.raises(InvalidFilter) as raised:
        parse(" or ".join(["team is 'fx'"] * 50) + " or \x1b[31m")

    _, shown, caret = str(raised.value).splitlines()
    assert len(shown) < 90
    assert "\x1b" not in str(raised.value)
    assert shown[caret.index("^")] == "·"


def test_bounds() -> None:
    with pytest.raises(InvalidFilter, match="at most 2000 characters"):
        parse("a is '" + "x" * MAX_CHARACTERS + "'")
    with pytest.raises(InvalidFilter, match=f"more than {MAX_DEPTH} levels"):
        parse("not " * MAX_DEPTH + "has a")
    assert parse("not " * (MAX_DEPTH - 1) + "has a").depth == MAX_DEPTH
    assert parse("(" * 900 + "has a" + ")" * 900).depth == 1
