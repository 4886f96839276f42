from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.adapters.admin.access import (
    LONGEST_TOKEN,
    ROLES,
    Action,
    AdminTokens,
    Caller,
    TokensFileError,
    allows,
    built_in,
)
from gateway.core.policy.permissions import ADMIN_ACTIONS
from gateway.settings.admin_tokens import new_token, tokens_line


def write(folder: Path, *lines: str) -> Path:
    file = folder / "admins"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def test_a_token_is_found_by_its_hash_alone(tmp_path: Path) -> None:
    token, other = new_token(), new_token()
    line = tokens_line("ops", frozenset({"operator", "viewer"}), token)
    tokens = AdminTokens(write(tmp_path, "# on call", "", line, tokens_line("bot", frozenset({"viewer"}), other)))

    assert len(tokens) == 2
    found, bot = tokens.find(token), tokens.find(other)
    assert found is not None
    assert bot is not None
    assert found == tokens.named("ops") == Caller("ops", frozenset({"operator", "viewer"}), found.fingerprint)
    assert bot == tokens.named("bot")
    assert found.fingerprint != bot.fingerprint
    assert tokens.named("nobody") is None
    assert token not in line
    assert hashlib.sha256(token.encode()).hexdigest() in line


def test_a_token_is_compared_with_every_line_in_constant_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By how long it takes, nothing is told of which line it is, or how much of a guess is right."""
    tokens = [new_token() for _ in range(4)]
    lines = [tokens_line(f"a{number}", frozenset({"viewer"}), token) for number, token in enumerate(tokens)]
    known = AdminTokens(write(tmp_path, *lines))
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr("gateway.adapters.admin.access.hmac", SimpleNamespace(compare_digest=compare))
    for token in (tokens[0], tokens[-1], "gwadm_wrong", tokens[0][:-1]):
        compared.clear()
        known.find(token)
        assert compared == [(32, 32)] * len(tokens)


@pytest.mark.parametrize("wrong", ["", "gwadm_", "x" * (LONGEST_TOKEN + 1), "\ud800", "gwadm_\x00"])
def test_nobody_has_a_token_that_was_never_made(tmp_path: Path, wrong: str) -> None:
    tokens = AdminTokens(write(tmp_path, tokens_line("ops", frozenset({"viewer"}), new_token())))

    assert tokens.find(wrong) is None


def test_tokens_differ_and_look_like_what_they_are() -> None:
    one, other = new_token(), new_token()

    assert one != other
    assert one.startswith("gwadm_")
    assert len(one) == len("gwadm_") + 43


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ((), "holds no token"),
        (("ops",), "line 1: is not of the form"),
        (("ops:viewer:sha256$12",), "line 1: is not of the form"),
        (("o ps:viewer:sha256$" + "0" * 64,), "line 1: is not of the form"),
        (("ops::sha256$" + "0" * 64,), "line 1: is not of the form"),
        (("a:viewer:sha256$" + "0" * 64, "a:viewer:sha256$" + "1" * 64), "line 2: a stands in an earlier line"),
    ],
)
def test_a_file_that_cannot_be_used_says_where_and_what_to_do(
    tmp_path: Path, lines: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(TokensFileError, match=complaint) as raised:
        AdminTokens(write(tmp_path, *lines))

    assert "gateway admin token create" in str(raised.value)
    assert "sha256$" not in str(raised.value).replace("sha256$…", "")


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(TokensFileError, match="cannot be read"):
        AdminTokens(tmp_path / "nowhere")


def test_a_bad_file_at_a_reload_changes_nothing(tmp_path: Path) -> None:
    token = new_token()
    file = write(tmp_path, tokens_line("ops", frozenset({"viewer"}), token))
    tokens = AdminTokens(file)
    file.write_text("nonsense", encoding="utf-8")

    with pytest.raises(TokensFileError):
        tokens.reload()

    assert tokens.find(token) is not None


def test_a_reload_forgets_what_was_removed(tmp_path: Path) -> None:
    token = new_token()
    file = write(tmp_path, tokens_line("ops", frozenset({"viewer"}), token))
    tokens = AdminTokens(file)
    file.write_text(tokens_line("ops", frozenset({"viewer"}), new_token()), encoding="utf-8")

    assert tokens.reload() == 1
    assert tokens.find(token) is None


@pytest.mark.parametrize(
    ("name", "roles"), [("", {"viewer"}), ("a:b", {"viewer"}), ("ops", set()), ("ops", {"a b"}), ("ops", {"a,b"})]
)
def test_a_line_that_could_not_be_read_again_is_not_made(name: str, roles: set[str]) -> None:
    with pytest.raises(ValueError, match=r"a (name|role|token)"):
        tokens_line(name, frozenset(roles), new_token())


def test_no_representation_shows_a_hash(tmp_path: Path) -> None:
    tokens = AdminTokens(write(tmp_path, tokens_line("ops", frozenset({"viewer"}), new_token())))

    assert "digest" not in repr(tokens._lines)


def test_policies_grant_just_the_actions_that_there_are() -> None:
    assert {action.value for action in Action} == set(ADMIN_ACTIONS)


@pytest.mark.parametrize("action", list(Action))
def test_an_administrator_may_do_everything(action: Action) -> None:
    assert allows(built_in(frozenset({"administrator"})), action)


def test_a_viewer_changes_nothing() -> None:
    granted = built_in(frozenset({"viewer"}))

    assert {action for action in Action if allows(granted, action)} == {a for a in Action if a.endswith(":read")}


def test_an_operator_writes_no_topics() -> None:
    assert not allows(built_in(frozenset({"operator"})), Action.TOPICS_WRITE)
    assert allows(built_in(frozenset({"operator"})), Action.SESSIONS_CLOSE)


def test_roles_add_up_and_unknown_ones_give_nothing() -> None:
    assert built_in(frozenset({"viewer", "operator", "chef"})) == ROLES["viewer"] | ROLES["operator"]
    assert built_in(frozenset()) == frozenset()


@pytest.mark.parametrize(
    ("granted", "allowed"),
    [({"*"}, True), ({"sessions:*"}, True), ({"sessions:close"}, True), ({"topics:*"}, False), ({"sessions"}, False)],
)
def test_patterns_of_actions(granted: set[str], allowed: bool) -> None:
    assert allows(frozenset(granted), Action.SESSIONS_CLOSE) is allowed
