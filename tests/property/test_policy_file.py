"""Whatever a policy file says, it is a policy or refused in words; nothing else comes out of reading it."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.policy import Lines, _Reader
from gateway.core.policy.permissions import PRINCIPAL, Permissions, fits_segment, parse_template
from gateway.core.topics.selectors import parse_selector
from gateway.core.topics.topics import parse_topic

words = st.sampled_from(
    [
        "default",
        "roles",
        "principals",
        "select",
        "publish",
        "send",
        "consume",
        "properties",
        "admin",
        "a",
        "*",
        "**",
        "$x",
        "a/**",
        "",
        "${x}",
    ]
)
values = st.recursive(
    st.one_of(words, st.text(max_size=8), st.integers(), st.booleans(), st.none()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(words, values, max_size=4))
def test_any_content_is_a_policy_or_complained_of(content: dict[str, object]) -> None:
    reader = _Reader(Path("policy.toml"), Lines(""))
    policy = reader.policy(content)
    assert reader.problems or set(content) <= {"default", "roles", "principals"}
    assert all(each.complaint and each.remedy and "\n" not in each.place for each in reader.problems)
    if not reader.problems:
        assert isinstance(policy.permissions_of("alice"), Permissions)


@given(st.text(max_size=200), st.lists(words, max_size=3).map(tuple), words | st.none())
def test_lines_are_found_in_any_text(text: str, key: tuple[str, ...], entry: str | None) -> None:
    line = Lines(text).find(key, entry) if key else None
    assert line is None or 1 <= line <= text.count("\n") + 1


@given(st.text(max_size=12) | st.text(alphabet="a/*$", max_size=6))
def test_a_principal_never_widens_a_permission(principal: str) -> None:
    """What is filled in matches that one segment, whatever the principal is called."""
    for text in ("users/${principal}/**", "${principal}/**", "a/${principal}"):
        bound = parse_template(text).bind({PRINCIPAL: principal})
        if bound is None:
            continue
        assert fits_segment(principal)
        assert bound.segments == tuple(text.replace("${principal}", principal).split("/"))
        other = Permissions(frozenset(), select=[bound])
        for stranger in ("users/somebody else/x", "somebody else/x", "$gateway/nodes/n1", "a/somebody else"):
            assert not other.may_receive(parse_topic(stranger)) or principal in stranger.split("/")
        assert not other.may_select(parse_selector("**"))
