"""Exit codes and messages, whatever goes wrong; and ``serve``, up to the point where a node takes over."""

import subprocess
import sys
from pathlib import Path

import pytest

from gateway import __version__
from gateway.core.wire.errors import GatewayError
from gateway.settings import SETTINGS, Settings
from tests.unit.cli.conftest import Run

KEY = "k" * 32


class FakeBootstrap:
    """Stands in for what runs nodes."""

    def __init__(self) -> None:
        self.settings: Settings | None = None
        self.code = 0
        self.error: BaseException | None = None

    def run(self, settings: Settings) -> int:
        self.settings = settings
        if self.error is not None:
            raise self.error
        return self.code


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> FakeBootstrap:
    found = FakeBootstrap()
    monkeypatch.setattr("gateway.bootstrap.run", found.run)
    return found


def test_version_and_help(run: Run) -> None:
    assert run("--version").out.strip().endswith(__version__)
    assert run("--help").code == 0
    assert run("-h").out == run("--help").out


def test_every_command_has_help(run: Run) -> None:
    for command in ("serve", "check-config", "config", "pub", "sub", "token", "token inspect", "hash-secret"):
        result = run(*command.split(), "--help")
        assert (result.code, result.err) == (0, "")


def test_serve_has_a_flag_for_every_setting_but_secrets(run: Run) -> None:
    text = run("serve", "--help").out

    for each in SETTINGS.values():
        if each.flag is not None:
            assert f"{each.flag} " in text
    assert "--token-keys " not in text


def test_serve_runs_a_node_with_what_the_flags_say(run: Run, bootstrap: FakeBootstrap) -> None:
    bootstrap.code = 7

    result = run(
        *("serve", "--node", "n1", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--auth", "anonymous"),
        *("--grid", "redis://127.0.0.1:6379/0", "--no-replication", "--window-default", "5s"),
        environment={"GATEWAY_TOKEN_KEYS": KEY},
    )

    assert (result.code, result.err) == (7, "")
    settings = bootstrap.settings
    assert settings is not None
    assert (settings.node, settings.listen.port, settings.replication) == ("n1", 0, False)
    assert (settings.grid, settings.window_default) == ("redis://127.0.0.1:6379/0", 5)
    assert [key.reveal() for key in settings.token_keys] == [KEY]


@pytest.mark.parametrize(
    ("environment", "flags", "complaints"),
    [
        ({}, ["--auth", "anonymous"], ["token_keys: there is no key to sign session tokens with"]),
        ({"GATEWAY_TOKEN_KEYS": KEY}, [], ["auth: there is no authentication"]),
        ({}, [], ["token_keys: there is no key", "auth: there is no authentication"]),
    ],
)
def test_serve_refuses_to_start_without_keys_or_authentication(
    run: Run, bootstrap: FakeBootstrap, environment: dict[str, str], flags: list[str], complaints: list[str]
) -> None:
    result = run("serve", *flags, environment=environment)

    assert result.code == 2
    assert bootstrap.settings is None
    lines = result.err.splitlines()
    assert len(lines) == len(complaints)
    for line, complaint in zip(lines, complaints, strict=True):
        assert line.startswith(f"gateway: error: {complaint}")
        assert "--dev" in line


@pytest.mark.parametrize(
    ("flags", "environment", "warns"),
    [
        (["--grid", "redis://gateway:hidden@127.0.0.1/0"], {}, True),
        (["--grid", "redis://:hidden@127.0.0.1/0"], {}, True),
        (["--grid", "redis+sentinel://127.0.0.1/main?sentinel_password=hidden"], {}, True),
        (["--grid", "redis://gateway@127.0.0.1/0"], {}, False),
        (["--grid", "redis://127.0.0.1/0"], {}, False),
        ([], {"GATEWAY_GRID": "redis://gateway:hidden@127.0.0.1/0"}, False),
    ],
)
def test_a_password_in_the_list_of_processes_is_warned_of(
    run: Run, bootstrap: FakeBootstrap, flags: list[str], environment: dict[str, str], warns: bool
) -> None:
    for command in ("serve", "check-config"):
        result = run(command, "--dev", *flags, environment=environment)

        assert result.code == 0, result.err
        assert ("gateway: warning: --grid has a password in it, which every user" in result.err) is warns
        assert "hidden" not in result.err


def test_serve_starts_with_nothing_but_dev(run: Run, bootstrap: FakeBootstrap) -> None:
    assert run("serve", "--dev").code == 0
    assert bootstrap.settings is not None
    assert bootstrap.settings.token_keys_are_random


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(98, "Address already in use"), "Address already in use"),
        (GatewayError("the grid is of another kind"), "the grid is of another kind"),
        (RuntimeError("oops"), "this is a bug: RuntimeError: oops"),
    ],
)
def test_a_failure_while_running_is_one_line_and_code_1(
    run: Run, bootstrap: FakeBootstrap, error: Exception, message: str
) -> None:
    bootstrap.error = error

    result = run("serve", "--dev")

    assert result.code == 1
    assert result.err.startswith("gateway: error: ")
    assert message in result.err
    assert result.err.count("\n") == 1


def test_a_bug_shows_where_it_came_from_when_asked(run: Run, bootstrap: FakeBootstrap) -> None:
    bootstrap.error = RuntimeError("oops")

    assert "Traceback" in run("--traceback", "serve", "--dev").err


def test_ctrl_c_is_told_as_shells_do(run: Run, bootstrap: FakeBootstrap) -> None:
    bootstrap.error = KeyboardInterrupt()

    assert run("serve", "--dev").code == 130


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serv"], "No such command 'serv'"),
        (["serve", "--nod", "n1"], "--nod"),
        (["serve", "--token-keys", "x"], "--token-keys"),
        (["pub", "topic"], "Missing argument 'JSON'"),
        (["serve", "--lease", "soon"], "--lease: 'soon' is not a duration; give seconds between 1 and 300"),
        (["serve", "--config", "/nowhere"], "--config /nowhere: the file cannot be read"),
        (["sub", "**", "--url", "foo"], "'foo' is not a URL such as ws://127.0.0.1:8100"),
        (["sub", "**", "--url", "ws://"], "'ws://' is not a URL such as ws://127.0.0.1:8100"),
        (["pub", "a", "1", "--url", "127.0.0.1:8101"], "is not a URL such as ws://127.0.0.1:8100"),
        (["pub", "a", "1", "--url", "ws://a,wss://b"], "either all URLs use TLS"),
    ],
)
def test_asking_wrongly_is_one_line_and_code_2(run: Run, arguments: list[str], message: str) -> None:
    result = run(*arguments)

    assert result.code == 2
    assert result.err.startswith("gateway: error: ")
    assert message.lower() in result.err.lower()
    assert "Traceback" not in result.err


def test_the_module_is_the_program_and_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", "config", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path.cwd())},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    # Closed before anything is read: what it writes has no reader.
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()

    assert process.wait(60) == 0
    assert errors == ""
