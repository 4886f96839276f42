"""``token inspect`` and ``hash-secret``: useful, and without a word that could be used (P8)."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.adapters.authentication import read_users
from gateway.adapters.tokens import ItsdangerousTokenSigner, key_id
from gateway.core.types import GridGeneration, SessionId, TokenGeneration
from tests.unit.cli.conftest import Run, Stdin

pytestmark = pytest.mark.promise("P8")

KEY, OTHER_KEY = "k" * 32, "o" * 32
SESSION = SessionId("KJh3x0ZQ2mW8sT5rVbYc1g")


def token(key: str = KEY, *, life: float = 7200, session: str = SESSION) -> str:
    signer = ItsdangerousTokenSigner([key.encode()], life=life)
    return signer.sign(SessionId(session), TokenGeneration(3), now=time.time())


def test_a_token_is_told_from_standard_input(run: Run) -> None:
    text = token()

    result = run("token", "inspect", stdin=text + "\n", environment={"GATEWAY_TOKEN_KEYS": f"{OTHER_KEY},{KEY}"})

    assert (result.code, result.err) == (0, "")
    fields = dict(line.split(maxsplit=1) for line in result.out.replace("key id", "key-id").splitlines())
    assert fields["session"] == SESSION
    assert fields["generation"] == "3"
    assert fields["key-id"] == f"{key_id(KEY.encode())} (signs here)"
    assert fields["signature"] == "verified"
    assert "(in 1 h 59 min)" in fields["expires"] or "(in 2 h 00 min)" in fields["expires"]
    for part in text.split("."):
        assert part not in result.out


@pytest.mark.parametrize(
    ("told", "seen", "shown"), [(None, None, ("unknown", "unknown")), (3, 3, (3, 3)), (3, 4, (3, 4))]
)
def test_what_its_holder_knows_of_the_grid_is_told(
    run: Run, told: int | None, seen: int | None, shown: tuple[object, object]
) -> None:
    made = ItsdangerousTokenSigner([KEY.encode()], life=7200).sign(
        SESSION,
        TokenGeneration(3),
        now=time.time(),
        grid_generation=None if told is None else GridGeneration(told),
        seen_generation=None if seen is None else GridGeneration(seen),
    )

    fields = json.loads(run("token", "inspect", "--json", stdin=made).out)
    assert (fields["grid"], fields["grid seen"]) == shown


def test_a_token_is_told_from_a_file_and_for_programs(run: Run, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(token(), "ascii")
    (tmp_path / "gateway.toml").write_text(f'token_keys = ["{KEY}"]\n', "ascii")

    result = run("token", "inspect", str(tmp_path / "token"), "--config", str(tmp_path / "gateway.toml"), "--json")

    assert result.code == 0
    assert json.loads(result.out)["signature"] == "verified"


def test_keys_are_found_in_a_file_that_is_no_whole_configuration(run: Run, tmp_path: Path) -> None:
    """Nodes of systemd have the rest in variables: where they listen for links, and where the grid is."""
    (tmp_path / "keys").write_text(f"{KEY}\n", "ascii")
    (tmp_path / "next").write_text(f"# to sign next\n{OTHER_KEY}\n", "ascii")
    (tmp_path / "gateway.toml").write_text(
        'token_keys_file = "keys"\ntoken_verify_keys_file = "next"\nlink_tls_ca = "ca.pem"\n', "ascii"
    )

    for key in (KEY, OTHER_KEY):
        result = run("token", "inspect", "--config", str(tmp_path / "gateway.toml"), stdin=token(key))

        assert (result.code, result.err) == (0, "")
        assert "verified" in result.out
        assert ("(signs here)" in result.out) == (key == KEY)


@pytest.mark.parametrize(
    ("make", "keys", "verdict", "code"),
    [
        (token, None, "not checked: no token keys are configured here", 0),
        (lambda: token(OTHER_KEY), KEY, "not verified: the key that it names is not configured", 1),
        (lambda: token()[:-43] + "A" * 43, KEY, "WRONG: the key that it names is configured, but did not make it", 1),
        (lambda: token(life=-3630), KEY, "EXPIRED 1 h 00 min ago", 1),
        (lambda: token(life=-3600), KEY, "verified", 1),
    ],
)
def test_what_a_node_would_refuse_is_told(
    run: Run, make: Callable[[], str], keys: str | None, verdict: str, code: int
) -> None:
    result = run("token", "inspect", stdin=make(), environment={"GATEWAY_TOKEN_KEYS": keys} if keys else {})

    assert result.code == code
    assert verdict in result.out


@pytest.mark.parametrize("text", ["", "hello", "a.b", "x" * 5000, "\x00"])
def test_what_is_no_token_is_told_without_repeating_it(run: Run, text: str) -> None:
    result = run("token", "inspect", stdin=text)

    assert (result.code, result.out) == (1, "")
    assert result.err == "gateway: error: this is no session token of the gateway\n"


def test_a_token_on_the_command_line_is_refused_without_repeating_it(run: Run) -> None:
    text = token()

    result = run("token", "inspect", text)

    assert result.code == 2
    assert "does not belong on the command line" in result.err
    assert text not in result.err


def test_a_token_of_strangers_cannot_steer_the_terminal(run: Run) -> None:
    assert "\x1b" not in run("token", "inspect", stdin=token(session="\x1b[31mred")).out


def test_a_file_that_is_not_there_is_told(run: Run) -> None:
    result = run("token", "inspect", "/nowhere")

    assert result.code == 2
    assert "the file /nowhere cannot be read (No such file or directory)" in result.err


def test_hash_secret_makes_a_line_that_is_read_again(run: Run, tmp_path: Path) -> None:
    result = run("hash-secret", "alice", stdin="looking-glass\n")

    assert (result.code, result.err) == (0, "")
    (tmp_path / "users").write_text(result.out, "utf-8")
    assert read_users(tmp_path / "users")["alice"].hashed.matches("looking-glass")
    assert "looking-glass" not in result.out


def test_hash_secret_writes_roles_and_properties(run: Run, tmp_path: Path) -> None:
    result = run(
        *("hash-secret", "alice", "--role", "trader", "--role", "auditor", "--property", "desk=Rates, London"),
        stdin="looking-glass\n",
    )

    assert (result.code, result.err) == (0, "")
    (tmp_path / "users").write_text(result.out, "utf-8")
    identity = read_users(tmp_path / "users")["alice"].identity
    assert identity.roles == {"trader", "auditor"}
    assert identity.properties == {"desk": "Rates, London"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--property", "team"), "takes NAME=VALUE"),
        (("--property", "a=1", "--property", "a=2"), "each name once"),
        (("--property", "$a=1"), "the name of a property"),
        (("--role", "a b"), "a role has"),
    ],
)
def test_hash_secret_refuses_attributes_that_could_not_be_read(
    run: Run, options: tuple[str, ...], message: str
) -> None:
    result = run("hash-secret", "alice", *options, stdin="looking-glass\n")

    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_hash_secret_asks_on_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def prompt(text: str, **_options: object) -> str:
        asked.append(text)
        return "looking-glass"

    monkeypatch.setattr("click.prompt", prompt)
    monkeypatch.setattr(Stdin, "isatty", lambda _self: True)

    result = run("hash-secret", "alice")

    assert (result.code, asked) == (0, ["Secret"])
    assert result.out.startswith("alice:scrypt$n=16384,r=8,p=5$")
    assert sys.stdin.isatty()


def test_hash_secret_warns_of_short_secrets(run: Run) -> None:
    assert "soon guessed" in run("hash-secret", "alice", stdin="short\n").err


@pytest.mark.parametrize(
    ("principal", "secret", "message"),
    [("alice", "\n", "a secret has 1 to"), ("alice", "x" * 2000, "a secret has 1 to"), ("#a", "x" * 20, "visible")],
)
def test_hash_secret_refuses_what_could_not_be_used(run: Run, principal: str, secret: str, message: str) -> None:
    result = run("hash-secret", principal, stdin=secret)

    assert (result.code, result.out) == (2, "")
    assert message in result.err
