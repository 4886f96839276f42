import pytest

from gateway.adapters.admin.actions import ROLES, Action, allows, built_in
from gateway.core.policy.permissions import ADMIN_ACTIONS


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
