"""``gateway policy``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run

POLICY = """\
default = ["reader"]
[roles.reader]
select = ["prices/**", "users/${principal}/**"]
[roles.half]
select = ["log/*"]
[roles.rest]
select = ["log/*/*/**"]
[roles.trader]
publish = ["orders/${principal}/*", "chat/${principal.team}"]
properties = ["desk"]
admin = ["sessions:*"]
[roles.worker]
send = ["done/*"]
consume = ["jobs/${principal}"]
[principals]
alice = ["trader"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY, "utf-8")
    return path


def test_check_sums_a_policy_up(run: Run, file: Path) -> None:
    result = run("policy", "check", str(file))
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        "role reader (every principal has it)",
        "  select      prices/**, users/${principal}/**",
        "role half",
        "  select      log/*",
        "role rest",
        "  select      log/*/*/**",
        "role trader",
        "  publish     orders/${principal}/*, chat/${principal.team}",
        "  properties  desk",
        "  admin       sessions:*",
        "role worker",
        "  send        done/*",
        "  consume     jobs/${principal}",
        "principals with roles of their own: 1",
        "The policy is fit to run.",
    ]


@pytest.mark.parametrize("command", [("check",), ("explain", "select", "a")])
def test_a_bad_policy_is_told_in_full_with_code_2(run: Run, file: Path, command: tuple[str, ...]) -> None:
    file.write_text('default = ["x"]\n[roles.y]\nselekt = []\n', "utf-8")
    name, *rest = command
    result = run("policy", name, str(file), *rest)
    assert result.code == 2
    assert result.out == ""
    assert [line.partition(str(file))[2][:12] for line in result.err.splitlines()] == [":3: roles.y.", ":1: default:"]
    assert all(line.startswith("gateway: error: ") for line in result.err.splitlines())


def test_check_config_reads_the_policy(run: Run, file: Path) -> None:
    assert "policy: 5 roles, 1 principals" in run("check-config", "--dev", "--policy", str(file)).out
    file.write_text("", "utf-8")
    result = run("check-config", "--dev", "--policy", str(file))
    assert result.code == 2
    assert "the policy has no role" in result.err


def explained(run: Run, file: Path, *arguments: str) -> tuple[int, list[str]]:
    result = run("policy", "explain", str(file), *arguments)
    assert result.err == ""
    return result.code, result.out.splitlines()


def test_explain_tells_what_is_allowed_and_by_which_role(run: Run, file: Path) -> None:
    assert explained(run, file, "--principal", "alice", "select", "users/alice/*") == (
        0,
        ["roles: reader, trader", "allowed: all of 'users/alice/*' may be selected", "by: reader"],
    )
    assert explained(run, file, "--principal", "alice", "publish", "orders/alice/1")[0] == 0
    worker = ("--principal", "w1", "--roles", "worker")
    assert explained(run, file, *worker, "consume", "jobs/w1")[0] == 0
    assert explained(run, file, *worker, "consume", "jobs/w2")[0] == 1
    assert explained(run, file, *worker, "send", "done/w1")[1][1] == "allowed: to send messages to 'done/w1'"
    assert explained(run, file, *worker, "send", "jobs/w1")[0] == 1
    assert explained(run, file, "--principal", "alice", "property", "desk")[1][-1] == "by: trader"
    assert explained(run, file, "--roles", "half, rest", "--principal", "x", "select", "log/*/**") == (
        0,
        ["roles: half, reader, rest", "allowed: all of 'log/*/**' may be selected", "by: several roles together"],
    )
    arguments = ("--principal", "bob", "--roles", "trader", "--property", "team=fx", "publish", "chat/fx")
    assert explained(run, file, *arguments)[0] == 0
    assert explained(run, file, "--principal", "alice", "admin", "sessions:close") == (
        0,
        ["roles: reader, trader", "allowed: to end sessions", "by: trader"],
    )


def test_explain_tells_what_is_not(run: Run, file: Path) -> None:
    assert explained(run, file, "--principal", "bob", "select", "**") == (
        1,
        ["roles: reader", "forbidden: of '**' may be selected: prices/**, users/bob/**"],
    )
    assert explained(run, file, "--principal", "bob", "select", "secret")[1][1] == (
        "forbidden: of 'secret' may be selected: nothing"
    )
    assert explained(run, file, "--principal", "bob", "publish", "prices/x")[0] == 1
    assert explained(run, file, "--principal", "bob", "publish", "$gateway/x")[1][1] == (
        "forbidden: only the gateway publishes to topics that begin with '$'"
    )
    assert explained(run, file, "--principal", "bob", "property", "desk")[0] == 1
    assert explained(run, file, "--principal", "bob", "admin", "nodes:read")[0] == 1


def test_explain_tells_which_entries_give_nothing(run: Run, file: Path) -> None:
    code, lines = explained(run, file, "--principal", "a/b", "select", "users/a/**")
    assert code == 1
    assert lines[-1] == (
        "note: 'users/${principal}/**' of role reader gives nothing here: a value is missing, or is no segment"
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--roles", "nobody", "select", "a"), "there is no role 'nobody'"),
        (("--property", "team", "select", "a"), "a property is given as NAME=VALUE, but 'team' is not"),
        (("select", "a//b"), "nothing empty between two"),
        (("publish", "a/*"), "'*' cannot be in it"),
        (("admin", "sessions:eat"), "there is no action 'sessions:eat'; there are"),
    ],
)
def test_a_question_that_makes_no_sense_has_code_2(
    run: Run, file: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    result = run("policy", "explain", str(file), *arguments)
    assert result.code == 2
    assert complaint in result.err
