"""Policies read from files, and everything that can be wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.adapters import policy as policy_file
from gateway.adapters.policy import PolicyFileError, read_policy
from gateway.core.topics.selectors import parse_selector
from gateway.core.types import TopicPath

GOOD = """\
default = ["reader"]

[roles.reader]
select = ["prices/**", "users/${principal}/**"]

[roles.trader]
publish = [
  "orders/${principal}/*",
  "chat/**",
]
properties = ["desk"]

[roles."ops: night"]
select = ["$gateway/**"]
properties = ["*"]
admin = ["sessions:*", "nodes:drain"]

[principals]
alice = ["trader"]
"bob@example.com" = ["trader", "ops: night"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "policy.toml"


def problems(file: Path, text: str) -> list[str]:
    file.write_text(text, "utf-8")
    with pytest.raises(PolicyFileError) as refused:
        read_policy(file)
    assert str(refused.value) == "\n".join(map(str, refused.value.problems))
    return [str(each).removeprefix(str(file)) for each in refused.value.problems]


def test_a_policy_is_read(file: Path) -> None:
    file.write_text(GOOD, "utf-8")
    policy = read_policy(file)
    assert policy.roles_of("bob@example.com") == {"reader", "trader", "ops: night"}
    alice = policy.permissions_of("alice")
    assert alice.may_select(parse_selector("users/alice/*"))
    assert not alice.may_select(parse_selector("users/bob/*"))
    assert alice.may_publish(TopicPath("orders/alice/1"))
    assert not alice.may_publish(TopicPath("orders/bob/1"))
    assert alice.may_set("desk")
    assert not alice.may_set("team")
    assert policy.permissions_of("stranger").roles == {"reader"}
    assert policy.permissions_of("x", ["ops: night"]).may_select(parse_selector("$gateway/**"))
    assert "sessions:move" in policy.admin_actions(["ops: night"])


def broken(*replacements: tuple[str, str]) -> str:
    text = GOOD
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", ": roles: the policy has no role, so no principal could do anything; add one such as [roles.reader]"),
        (
            broken(("[principals]", "[principles]")),
            ":18: principles: there is no such key; did you mean 'principals'? (there are default, roles,",
        ),
        (
            broken(("publish = [", "publishes = [")),
            ":7: roles.trader.publishes: there is no such key; did you mean 'publish'? (there are select, publish,",
        ),
        (
            broken(("chat/**", "chat/a*")),
            ":9: roles.trader.publish: 'chat/a*' is not a selector: '*' stands for a whole segment and cannot be",
        ),
        (
            broken(("${principal}/*", "${user}/*")),
            ":8: roles.trader.publish: 'orders/${user}/*' is not a selector: a placeholder is a segment, ${principal}",
        ),
        (
            broken(("chat/**", "$gateway/x")),
            ":9: roles.trader.publish: '$gateway/x': only the gateway publishes below '$gateway'; remove it",
        ),
        (
            broken(("$gateway/**", "$gatway/**")),
            ":14: roles.ops: night.select: '$gatway/**': there is nothing below '$gatway'; say $gateway, or remove it",
        ),
        (
            broken(('["desk"]', '["$principal"]')),
            ":11: roles.trader.properties: '$principal' is the server's, and no client may set it; remove it",
        ),
        (
            broken(('["desk"]', '["a*"]')),
            ":11: roles.trader.properties: 'a*' is not the name of a property; use 1 to 64 characters, or '*' alone",
        ),
        (broken(('["desk"]', '[""]')), ":11: roles.trader.properties: '' is not the name of a property"),
        (
            broken(("nodes:drain", "node:drain")),
            ":16: roles.ops: night.admin: there is no action 'node:drain'; did you mean 'nodes:drain'? (there are *,",
        ),
        (
            broken(('alice = ["trader"]', 'alice = ["traders"]')),
            ":19: principals.alice: there is no role 'traders'; did you mean 'trader'? (there are reader, trader, ops",
        ),
        (broken(('alice = ["trader"]', "alice = [7]")), ":19: principals.alice: 7 is not a text; put it into quotes"),
        (
            broken(('default = ["reader"]', 'default = "reader"')),
            ':1: default: this is not a list; write default = ["…", "…"]',
        ),
        ("roles = 1", ":1: roles: roles is a table of roles such as [roles.reader]; correct it"),
        ("principals = []", ":1: principals: principals has lines such as"),
        ("[roles]\nreader = 5", ":2: roles.reader: a role is a table; write [roles.reader] above its permissions"),
        ('[roles."a\\nb"]', ":1: roles.'a\\nb': the name of the role cannot be used; use 1 to 256 visible characters,"),
        ('default = ["x"]\n[roles]', ":1: default: there is no role 'x'; define it as [roles.NAME]"),
        ("a = = b", ": the file is not TOML (Invalid value (at line 1, column 5)); correct it"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(file: Path, text: str, complaint: str) -> None:
    found = problems(file, text)
    assert any(each.startswith(complaint) for each in found), found


LONG = "x" * 251

TOO_LONG_TREES = [
    pytest.param("/".join(["a"] * 30), "a selector has at most 32 segments, but ", id="30-segments"),
    pytest.param("/".join(["*"] * 32), "a selector has at most 32 segments, but ", id="32-wildcards"),
    pytest.param(f"{LONG}/{LONG}/{LONG}/{LONG}", "a selector has at most 1024 bytes of UTF-8, but ", id="1007-bytes"),
    pytest.param(f"{'/'.join(['a'] * 30)}/${{principal}}", "a selector has at most 32 segments, but ", id="open"),
]


@pytest.mark.parametrize(("tree", "why"), TOO_LONG_TREES)
def test_presence_of_trees_whose_topics_would_be_too_long_is_refused(file: Path, tree: str, why: str) -> None:
    """Bug: it was accepted, and then nobody with the role could log in."""
    (told,) = problems(file, f'default = ["r"]\n[roles.r]\npresence = [\n  "{tree}",\n]\n')
    assert told.startswith(f":4: roles.r.presence: {tree!r} is too long for a tree that tells who is there: {why}")
    assert told.endswith("; name a tree of at most 28 segments and 768 bytes, as no longer one has members")


@pytest.mark.parametrize("tree", ["/".join(["a"] * 28) + "/**", "/".join(["*"] * 29), "/".join(["x" * 95] * 8) + "/**"])
def test_every_tree_that_may_have_members_can_be_named(file: Path, tree: str) -> None:
    file.write_text(f'default = ["r"]\n[roles.r]\npresence = ["{tree}"]\n')
    selected = read_policy(file).permissions_of("alice").select
    assert [each.text.startswith("$presence/") for each in selected] == [True, True]


def test_everything_is_told_at_once(file: Path) -> None:
    assert len(problems(file, GOOD.replace("chat/**", "a//b").replace("users/${principal}", "${x}"))) == 2


def test_a_file_that_cannot_be_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PolicyFileError, match=r"the policy cannot be read .*; name a file that this user may read"):
        read_policy(file)
    file.write_bytes(b"\xff")
    with pytest.raises(PolicyFileError, match="is not TOML"):
        read_policy(file)
    monkeypatch.setattr(policy_file, "LARGEST_FILE", 0)
    with pytest.raises(PolicyFileError, match="larger than"):
        read_policy(file)


def test_lines_of_unusual_ways_to_write_are_those_around_them(file: Path) -> None:
    text = 'roles.reader.select = ["a"]\nroles . other = { select = ["b//c"] }\n[principals]\n\'a\' = ["none"]\n'
    assert [each.split(": ")[0] for each in problems(file, text)] == [":2", ":4"]


def test_no_message_moves_a_terminal(file: Path) -> None:
    file.write_text(
        'default = ["x\\u001b[2J"]\n[roles."a\\tb\\u001b[31m"]\nx = 1\n[roles."\\u0007"]\n[principals]\na = ["a\\tc"]\n'
    )

    with pytest.raises(PolicyFileError) as caught:
        read_policy(file)

    assert all(each.isprintable() or each == "\n" for each in str(caught.value))
