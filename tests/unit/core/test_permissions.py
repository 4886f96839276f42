"""Roles added up, values filled in, lists narrowed."""

from __future__ import annotations

import gc
from typing import Any
from weakref import ref

import pytest

from gateway.core.policy.permissions import (
    ADMIN_ACTIONS,
    ANSWERS_BYTES,
    OPEN,
    REMEMBERED_BYTES,
    SELECTOR_BYTES,
    Permissions,
    Policy,
    Role,
    parse_template,
)
from gateway.core.topics import selectors
from gateway.core.topics.selections import NOTHING, Selections
from gateway.core.topics.selector_sets import is_covered
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.work import Work
from gateway.core.types import TopicPath
from gateway.core.wire.errors import InvalidSelector


def role(**given: Any) -> Role:
    for name in ("select", "publish", "send", "consume"):
        given[name] = tuple(map(parse_template, given.get(name, ())))
    return Role(**given)


def permissions(*select: str, publish: tuple[str, ...] = ()) -> Permissions:
    return Permissions(frozenset({"test"}), select=map(parse_selector, select), publish=map(parse_selector, publish))


def texts(*selectors: object) -> list[str]:
    return [str(each) for each in selectors]


# --- Roles ------------------------------------------------------------------------------------------------------------


def test_roles_come_from_three_places_and_unknown_ones_mean_nothing() -> None:
    policy = Policy(
        {"all": role(), "named": role(), "given": role(), "other": role()},
        default=["all"],
        principals={"alice": ["named"]},
    )
    assert policy.roles_of("alice", ["given", "stranger"]) == {"all", "named", "given"}
    assert policy.roles_of("bob") == {"all"}


def test_permissions_are_the_sum_of_the_roles() -> None:
    policy = Policy(
        {
            "a": role(select=("a/**",), publish=("a/x",), properties=frozenset({"team"})),
            "b": role(select=("b/**",), properties=frozenset({"desk"})),
        }
    )
    both = policy.permissions_of("alice", ["a", "b"])
    assert both.may_select(parse_selector("a/*"))
    assert both.may_select(parse_selector("b/*"))
    assert both.may_publish(TopicPath("a/x"))
    assert not both.may_publish(TopicPath("b/x"))
    assert both.may_set("team")
    assert both.may_set("desk")
    assert not both.may_set("other")
    assert repr(both) == "<Permissions of a, b>"
    nothing = policy.permissions_of("alice")
    assert not nothing.may_select(parse_selector("a/x"))
    assert not nothing.may_publish(TopicPath("a/x"))
    assert repr(nothing) == "<Permissions of no role>"


def test_sending_and_consuming_are_permitted_by_themselves() -> None:
    """Who may publish to a topic, or select it, may not use the queue of that path for it."""
    policy = Policy(
        {
            "topics": role(select=("**",), publish=("**",)),
            "producer": role(send=("jobs/*", "mine/${principal}")),
            "worker": role(consume=("jobs/render",)),
        }
    )
    queue, other, mine = TopicPath("jobs/render"), TopicPath("jobs/print"), TopicPath("mine/alice")
    topics, producer, worker = (policy.permissions_of("alice", [each]) for each in ("topics", "producer", "worker"))
    for each in (queue, other, mine):
        assert not topics.may_send(each)
        assert not topics.may_consume(each)
        assert producer.may_send(each)
        assert not producer.may_consume(each)
    assert [worker.may_consume(each) for each in (queue, other)] == [True, False]
    assert not worker.may_send(queue)
    assert not policy.permissions_of("bob", ["producer"]).may_send(mine)
    both = policy.permissions_of("alice", ["producer", "worker"])
    assert both.may_send(queue)
    assert both.may_consume(queue)
    assert not both.sends_all
    everybody = OPEN.permissions_of("anybody")
    assert everybody.sends_all
    assert everybody.consumes_all
    assert everybody.may_send(queue)
    assert everybody.may_consume(queue)


def test_sessions_with_the_same_roles_and_values_share_permissions_which_go_with_the_last() -> None:
    policy = Policy({"plain": role(select=("a",)), "own": role(select=("users/${principal}",))})
    assert policy.permissions_of("alice", ["plain"]) is policy.permissions_of("bob", ["plain"])
    alice = policy.permissions_of("alice", ["own"])
    assert alice is policy.permissions_of("alice", ["own"], {"irrelevant": "x"})
    assert alice is not policy.permissions_of("bob", ["own"])
    gone = ref(alice)
    del alice
    gc.collect()
    assert gone() is None


@pytest.mark.promise("P20")
def test_answers_remembered_are_bounded_in_bytes() -> None:
    """The longest of what clients make up, far more of it than is remembered."""
    some = permissions("a/**", "*/*/*", "*/*/*/*/**", publish=("a/**",))
    for number in range(3000):
        long = f"{number}-{'x' * 1000}"
        assert some.may_publish(TopicPath(f"a/{long}"))
        assert some.may_receive(TopicPath(f"a/{long}"))
        assert some.may_select(parse_selector(f"{number}/{'x' * 1000}/*/**"))
    for remembered, most in (
        (some._may_publish, REMEMBERED_BYTES),
        (some._may_receive, REMEMBERED_BYTES),
        (some._may_select, SELECTOR_BYTES),
        (selectors._selectors, selectors._CACHED_BYTES),
        (selectors._automata, selectors._CACHED_BYTES),
    ):
        assert 0 < remembered.measured() <= most


def test_without_a_policy_everything_is_allowed_but_the_system_s() -> None:
    everybody = OPEN.permissions_of("anybody", ["whatever"])
    assert everybody.publishes_all
    assert everybody.may_select(parse_selector("**"))
    assert everybody.may_set("anything")
    assert not everybody.may_select(parse_selector("$gateway/**"))
    assert not everybody.may_receive(TopicPath("$gateway/nodes/n1"))
    assert not everybody.may_publish(TopicPath("$gateway/nodes/n1"))
    assert OPEN.admin_actions(["everybody"]) == frozenset()


def test_who_may_select_everything_is_judged_without_a_search() -> None:
    everything = permissions("**", "$gateway/nodes/*")
    assert everything.selects_all
    texts = ("**", "*", "a", "a/**", "*/a", "**/a", "*/$a", "$gateway/**", "$gateway/nodes/n1", "$gateway/nodes/*")
    searched: set[str] = set()
    for selector in map(parse_selector, texts):
        work = Work()
        assert everything.may_select(selector, work) == is_covered(selector, everything.select)
        if work.taken:
            searched.add(selector.text)
    usual = Selections.from_wire(["+a", "+**/b", "-$gateway/x"])
    assert everything.narrow(usual, most=100, most_bytes=1000, work=Work(0)) == (usual, ())
    assert narrowed(["+a", "+$gateway/**"], "**", "$gateway/nodes/*") == (["+a", "+$gateway/nodes/*"], ["$gateway/**"])
    assert searched == {"$gateway/**", "$gateway/nodes/n1", "$gateway/nodes/*"}


# --- Administrators ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "actions"),
    [
        ({"*"}, set(ADMIN_ACTIONS)),
        ({"sessions:read", "nodes:drain"}, {"sessions:read", "nodes:drain"}),
        ({"topics:*"}, {"topics:read", "topics:write"}),
        (set(), set()),
    ],
)
def test_what_administrators_may_do(given: set[str], actions: set[str]) -> None:
    policy = Policy({"operator": Role(admin=frozenset(given))})
    assert policy.admin_actions(["operator", "unknown"]) == actions
    assert policy.admin_actions(["unknown"]) == frozenset()


# --- A session's own values -------------------------------------------------------------------------------------------


def bound(text: str, **values: str) -> str | None:
    selector = parse_template(text).bind({name.replace("__", "."): value for name, value in values.items()})
    return None if selector is None else selector.text


def test_values_take_the_place_of_their_segments() -> None:
    assert bound("users/${principal}/**", principal="alice") == "users/alice/**"
    assert bound("${principal}/inbox", principal="alice") == "alice/inbox"
    assert bound("teams/${principal.team}/${principal}", principal="alice", principal__team="fx") == "teams/fx/alice"
    assert bound("plain/**") == "plain/**"
    assert parse_template("a/${principal}/${principal}").names == ("principal",)
    assert repr(parse_template("a/${principal}")) == "<Template a/${principal}>"


@pytest.mark.parametrize(
    "value", ["", "a/b", "*", "**", "a*", "/", "$gateway", "${principal}", "a\nb", "\ud800", "x" * 1100]
)
def test_a_value_that_is_no_segment_gives_nothing(value: str) -> None:
    assert bound("users/${principal}/**", principal=value) is None
    assert bound("${principal}/**", principal=value) is None


def test_a_value_that_is_missing_gives_nothing() -> None:
    assert bound("teams/${principal.team}", principal="alice") is None
    policy = Policy({"own": role(select=("users/${principal}/**", "public"), publish=("users/${principal}/**",))})
    assert texts(*policy.permissions_of("a/b", ["own"]).select) == ["public"]
    assert policy.permissions_of("a/b", ["own"]).publish == ()


@pytest.mark.parametrize("text", ["users/x${principal}", "users/${name}", "${}", "a/${principal.}/b", "a/${principal"])
def test_placeholders_are_known_and_whole_segments(text: str) -> None:
    with pytest.raises(InvalidSelector, match="placeholder"):
        parse_template(text)


@pytest.mark.parametrize("text", ["", "a//b", "a/b*", "**/**/a/**/b/**/c/**/d/**", "${principal}//x"])
def test_templates_are_selectors(text: str) -> None:
    with pytest.raises(InvalidSelector):
        parse_template(text)


# --- What is left of a list -------------------------------------------------------------------------------------------


def narrowed(wire: list[str], *select: str, most: int = 100, most_bytes: int = 1000) -> tuple[list[str], list[str]]:
    left, withdrawn = permissions(*select).narrow(Selections.from_wire(wire), most=most, most_bytes=most_bytes)
    return list(left.to_wire()), texts(*withdrawn)


def test_a_list_that_is_allowed_stays_the_very_same() -> None:
    selections = Selections.from_wire(["+a/**", "-a/secret"])
    left, withdrawn = permissions("a/**").narrow(selections, most=100, most_bytes=100)
    assert left is selections
    assert withdrawn == ()


def test_what_is_not_allowed_is_taken_out_and_the_rest_decides_as_before() -> None:
    assert narrowed(["+a/**", "+b/**", "-a/secret"], "a/**") == (["+a/**", "-a/secret"], ["b/**"])
    assert narrowed(["+a/**", "-a/public/x", "+b"], "a/public/**") == (
        ["+a/public/**", "-a/public/x"],
        ["a/**", "b"],
    )
    assert narrowed(["+a", "-b/**", "+b/x"], "c") == ([], ["a", "b/x"])


def test_the_part_has_to_have_room_in_the_list() -> None:
    many = [f"a/{number}" for number in range(5)]
    assert narrowed(["+a/*", "+b"], "b", *many, most=6) == ([f"+{each}" for each in many] + ["+b"], ["a/*"])
    assert narrowed(["+a/*", "+b"], "b", *many, most=5) == (["+b"], ["a/*"])


def test_the_part_has_to_have_room_in_the_bytes_of_the_list() -> None:
    assert narrowed(["+a/*", "+b"], "b", "a/long-1", "a/long-2", most_bytes=20) == (
        ["+a/long-1", "+a/long-2", "+b"],
        ["a/*"],
    )
    assert narrowed(["+a/*", "+b"], "b", "a/long-1", "a/long-2", most_bytes=19) == (["+b"], ["a/*"])


def test_what_cannot_be_judged_with_the_work_counts_as_not_allowed() -> None:
    selections = Selections.from_wire([f"+a/{number}/**" for number in range(50)])
    rules = permissions("a/*", "a/*/*/**")
    assert permissions("a/*", "a/*/*/**").narrow(selections, most=100, most_bytes=10_000) == (selections, ())
    left, withdrawn = rules.narrow(selections, most=100, most_bytes=10_000, work=Work(200))
    assert 0 < len(withdrawn) < 50
    assert {f"+{each}" for each in withdrawn}.isdisjoint(left.to_wire())


def test_nothing_is_left_of_nothing() -> None:
    assert permissions().narrow(NOTHING, most=1, most_bytes=1) == (NOTHING, ())


def test_the_allowed_part_of_a_selector_is_named() -> None:
    some = permissions("prices/public/**", "prices/*/delayed", "news")
    assert texts(*some.allowed(parse_selector("prices/**")).selectors) == ["prices/public/**", "prices/*/delayed"]
    assert texts(*some.allowed(parse_selector("news")).selectors) == ["news"]
    assert some.allowed(parse_selector("other/**")).selectors == ()


# --- What all of them remember together -------------------------------------------------------------------------------


@pytest.mark.promise("P20")
def test_a_thousand_principals_with_permissions_of_their_own_share_the_bytes_of_a_node() -> None:
    policy = Policy(
        {"own": role(select=("own/${principal}/**",), publish=("own/${principal}/**",))},
        default=["own"],
        answers_bytes=1024**2,
    )
    everybody = [policy.permissions_of(f"p{number}") for number in range(1000)]
    for round_ in range(20):
        for number, each in enumerate(everybody):
            assert not each.may_publish(TopicPath(f"others/{round_}/{number}"))
            assert not each.may_receive(TopicPath(f"others/{round_}/{number}"))
            assert not each.may_select(parse_selector(f"others/{round_}/{number}/**"))
        assert remembered_by(everybody) <= policy.remembered_bytes <= 1024**2
    assert remembered_by(everybody) > 1024**2 / 2, "there is room for those that were asked last"
    assert everybody[0].may_publish(TopicPath("own/p0/x")), "and who is forgotten is answered as before"


def remembered_by(everybody: list[Permissions]) -> int:
    """Count the bytes of what is remembered, as it is and not as it was counted."""
    return sum(
        part.measured() for each in everybody for part in (each._may_select, each._may_publish, each._may_receive)
    )


def test_what_permissions_remembered_that_are_gone_makes_room() -> None:
    policy = Policy({"own": role(publish=("own/${principal}/**",))}, default=["own"], answers_bytes=100_000)
    kept = policy.permissions_of("kept")
    for number in range(200):
        gone = policy.permissions_of(f"p{number}")
        for topic in range(20):
            gone.may_publish(TopicPath(f"others/{topic}"))
        del gone
        kept.may_publish(TopicPath(f"others/{number}"))
        assert policy.remembered_bytes <= 100_000
    assert kept._may_publish.measured() > 0


def test_the_default_bound_of_all_holds_many_that_ask_for_as_much_as_they_may() -> None:
    assert ANSWERS_BYTES == 64 * 1024**2
    assert ANSWERS_BYTES >= 50 * (SELECTOR_BYTES + 2 * REMEMBERED_BYTES)
