"""What a client asks for again when a grid has forgotten what it had promised."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core.client.promises import Promises, changed, users
from gateway.core.client.request_table import UNNUMBERED, ClientAsk
from gateway.core.topics.selections import NOTHING, Selections
from gateway.core.topics.selectors import parse_selector
from gateway.core.wire.errors import InvalidSelector
from gateway.core.wire.packets import Publish, SetProperties, Subscribe, Unsubscribe


def select(selector: str) -> Subscribe:
    return Subscribe(UNNUMBERED, selector)


def deselect(selector: str) -> Unsubscribe:
    return Unsubscribe(UNNUMBERED, selector)


def properties(**changes: str | None) -> SetProperties:
    return SetProperties(UNNUMBERED, changes)


def promises(*executed: ClientAsk) -> Promises:
    made = Promises({"$node": "n1", "team": "fx"})
    for ask in executed:
        made.executed(ask)
    return made


def missing(
    made: Promises, *selections: str, unanswered: list[ClientAsk] | None = None, **held: str
) -> list[ClientAsk]:
    return made.missing(
        selections=selections, properties={"$node": "n2", **(held or {"team": "fx"})}, unanswered=unanswered or []
    )


def test_a_grid_that_holds_everything_is_asked_nothing() -> None:
    made = promises(select("a/**"), deselect("a/old"), Publish(UNNUMBERED, "x", b"1"))

    assert missing(made, "+a/**", "-a/old") == []
    assert missing(promises()) == []


def test_a_lost_end_of_the_list_is_asked_for_again() -> None:
    assert missing(promises(select("a"), select("b")), "+a") == [select("b")]
    assert missing(promises(select("a/**"), deselect("a/old"))) == [select("a/**"), deselect("a/old")]


def test_a_list_that_went_another_way_is_made_anew() -> None:
    made = promises(select("a"), select("b"), deselect("a"))

    assert missing(made, "+a", "+b") == [deselect("**"), select("b")]


def test_what_may_be_left_of_a_withdrawn_right_is_not_taken_away_to_ask_for_it() -> None:
    made = promises(select("x"), select("a/**"), deselect("a/old"))

    assert missing(made, "+x", "+a/b/**", "+a/c", "-a/old") == [select("a/**"), deselect("a/old")]
    assert missing(made, "+x", "-a/old", "+other")[0] == deselect("**")


def test_a_list_with_system_topics_is_made_anew_without_them() -> None:
    assert missing(promises(select("a")), "+$gateway/**", "+b") == [
        deselect("**"),
        deselect("$gateway/**"),
        select("a"),
    ]


def test_what_was_withdrawn_is_not_asked_for_again() -> None:
    made = promises(select("a/**"), select("b"))
    made.withdrawn(["+a/b/**", "+b"])
    assert missing(made, "+a/b/**", "+b") == []
    made.executed(deselect("b"))
    assert missing(made, "+a/b/**") == []
    assert missing(made, "+a/b/**", "+b") != []
    with pytest.raises(InvalidSelector):
        made.withdrawn(["a"])


def test_what_is_forbidden_is_given_up_but_for_what_is_left_of_it() -> None:
    made = promises(select("x"), select("a/**"), deselect("a/old"))
    made.forbidden("a/**", Selections.from_wire(["+x", "+a/b/**", "-a/old"]))
    assert missing(made, "+x", "+a/b/**", "-a/old") == []
    made.forbidden("x", NOTHING)
    assert missing(made, "+a/b/**", "-a/old") == []


def test_what_is_still_unanswered_may_have_happened_or_not() -> None:
    made = promises(select("a"))
    unanswered: list[ClientAsk] = [select("b"), properties(team="rates"), deselect("a")]

    assert missing(made, "+a", unanswered=unanswered) == []
    assert missing(made, "+a", "+b", unanswered=unanswered, team="rates") == []
    assert missing(made, "+b", unanswered=unanswered, team="rates") == []
    assert missing(made, unanswered=unanswered) == [select("b")], "the state after all of them"


def test_lost_properties_are_set_again() -> None:
    made = promises(properties(team=None, desk="7"))

    assert missing(made, desk="7") == []
    assert missing(made, team="fx", colour="red") == [properties(team=None, colour=None, desk="7")]
    assert missing(made, desk="6") == [properties(desk="7")]


def test_selections_that_are_none_are_refused() -> None:
    with pytest.raises(InvalidSelector):
        missing(promises(), "a")


def test_properties_of_users_and_changes() -> None:
    assert users({"$a": "1", "b": "2"}) == {"b": "2"}
    assert changed({"a": "1", "b": "2"}, {"a": None, "c": "3", "d": None}) == {"b": "2", "c": "3"}


STEPS = st.lists(
    st.builds(
        lambda kind, selector: kind(UNNUMBERED, selector),
        st.sampled_from([Subscribe, Unsubscribe]),
        st.sampled_from(["a", "b", "a/*", "a/**", "**", "a/b", "$r/**", "*/b"]),
    ),
    max_size=6,
)


def _apply(selections: Selections, asks: list[ClientAsk]) -> Selections:
    for ask in asks:
        assert isinstance(ask, Subscribe | Unsubscribe)
        step = selections.select if isinstance(ask, Subscribe) else selections.deselect
        selections = step(parse_selector(ask.selector))
    return selections


@settings(suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy with other tests
@given(STEPS, STEPS, STEPS)
def test_whatever_a_grid_holds_the_repair_leads_to_what_was_promised(
    executed: list[ClientAsk], unanswered: list[ClientAsk], other: list[ClientAsk]
) -> None:
    made = promises(*executed)
    held = _apply(NOTHING, other)
    repair = made.missing(selections=held.to_wire(), properties={"team": "fx"}, unanswered=unanswered)
    wanted = _apply(_apply(NOTHING, executed), unanswered)
    # The unanswered are asked again first, the repair comes after them.
    result = _apply(_apply(held, unanswered), repair)

    for topic in ("a", "b", "a/b", "a/c", "a/b/c", "z", "$r/b", "z/b"):
        assert result.selects(topic) == wanted.selects(topic), topic  # type: ignore[arg-type]
