"""``gateway admin token create``: a token is of use, or it is not made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "policy.toml"
    file.write_text(
        'default = ["everybody"]\n[roles.everybody]\nselect = ["**"]\n[roles.desk]\nadmin = ["nodes:read"]\n'
    )
    return file


@pytest.mark.parametrize(
    ("role", "said"),
    [
        (
            "oprator",
            "there is no role 'oprator', did you mean 'operator'? built in are viewer, operator, administrator",
        ),
        ("Viewer", "there is no role 'Viewer', did you mean 'viewer'?"),
        ("desk", "there is no role 'desk'; built in are"),
        ("desk", "if the policy of your nodes defines it, name the file by --policy"),
    ],
)
def test_a_role_that_nobody_defines_is_refused_and_nothing_is_made(
    run: Run, tmp_path: Path, role: str, said: str
) -> None:
    target = tmp_path / "token"

    result = run("admin", "token", "create", "alice", "--role", "viewer", "--role", role, "--file", str(target))

    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert "gwadm_" not in result.err
    assert not target.exists()


@pytest.mark.parametrize("by", ["flag", "variable"])
def test_a_role_of_the_policy_can_be_given(run: Run, policy: Path, by: str) -> None:
    given = ("--policy", str(policy)) if by == "flag" else ()
    environment = {"GATEWAY_POLICY": str(policy)} if by == "variable" else {}

    result = run("admin", "token", "create", "alice", "--role", "desk", *given, environment=environment)

    assert result.code == 0, result.err
    assert result.out.startswith("alice:desk:sha256$")


def test_a_role_that_the_policy_does_not_define_either_is_refused(run: Run, policy: Path) -> None:
    result = run("admin", "token", "create", "alice", "--role", "deks", "--policy", str(policy))

    assert (result.code, result.out) == (2, "")
    assert "did you mean 'desk'?" in result.err
    assert f"{policy} defines 'everybody', 'desk'" in result.err


def test_a_policy_that_cannot_be_used_is_told(run: Run, policy: Path) -> None:
    policy.write_text("[roles")

    result = run("admin", "token", "create", "alice", "--role", "desk", "--policy", str(policy))

    assert (result.code, str(policy) in result.err) == (2, True)
