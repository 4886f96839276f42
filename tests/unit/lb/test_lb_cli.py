"""The command line: output, exit codes, messages; no stack traces."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import lb.cli
from lb.errors import CommandRefused, NodeUnknown, SocketUnreachable
from lb.render import render
from lb.runtime import CheckResult, NodeStatus, Wanted
from lb.topology import build, default_topology


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(lb.cli.main, arguments, env=environment)


class FakeRuntime:
    """Stands in for the runtime socket; remembers its address and what was wanted."""

    used: list[FakeRuntime]

    def __init__(self, address: str) -> None:
        self.address = address
        self.wanted: list[tuple[str, Wanted]] = []
        self.used.append(self)

    def nodes(self) -> tuple[NodeStatus, ...]:
        ok, nothing = CheckResult("L7OK", ""), CheckResult("", "")
        return (
            NodeStatus("n1", "127.0.0.1:8101", True, True, Wanted.READY, 104, 900, "UP", 11_000, ok, ok),
            NodeStatus("node-two", "[::1]:8102", False, False, Wanted.MAINT, 1, 2, "MAINT", 59, nothing, ok),
            NodeStatus(
                "n3",
                "127.0.0.1:8103",
                False,
                True,
                Wanted.DRAIN,
                0,
                0,
                "DOWN",
                90_000,
                CheckResult("L4CON", "refused"),
                ok,
            ),
        )

    def node(self, name: str) -> NodeStatus:
        return next(status for status in self.nodes() if status.node == name)

    def set_wanted(self, name: str, wanted: Wanted) -> None:
        if name == "n9":
            raise NodeUnknown("there is no node 'n9'")
        if name == "away":
            raise SocketUnreachable("cannot reach HAProxy")
        self.wanted.append((name, wanted))


@pytest.fixture
def runtimes(monkeypatch: pytest.MonkeyPatch) -> list[FakeRuntime]:
    FakeRuntime.used = []
    monkeypatch.setattr(lb.cli, "RuntimeSocket", FakeRuntime)
    return FakeRuntime.used


def test_tls_has_a_certificate_where_nobody_names_one(tmp_path: Path) -> None:
    file = tmp_path / "lb.toml"
    file.write_text('[frontend]\ncertificate = "/from/file.pem"\n')

    assert "ssl crt /etc/haproxy/gateway.pem alpn h2,http/1.1" in run("render", "--tls").output
    assert "ssl crt /from/file.pem " in run("render", "--tls", "--topology", str(file)).output
    rendered = run("render", "--tls", "--certificate", "/given.pem", "--no-http2", "--hsts", "60").output
    assert "ssl crt /given.pem alpn http/1.1" in rendered
    assert "max-age=60" in rendered
    assert " ssl " not in run("render").output


def test_a_certificate_is_renewed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []

    class Renewing(FakeRuntime):
        def replace_certificate(self, name: str, pem: str) -> None:
            if pem == "bad":
                raise CommandRefused("HAProxy does not take it")
            told.append((name, pem))

    Renewing.used = []
    monkeypatch.setattr(lb.cli, "RuntimeSocket", Renewing)
    certificate, topology = tmp_path / "c.pem", tmp_path / "lb.toml"
    topology.write_text(f'[frontend]\ncertificate = "{certificate}"\n')

    certificate.write_text("good")
    assert run("renew-certificate", "-t", str(topology)).output == (
        f"{certificate}: in force for connections that begin from now on\n"
    )
    assert told == [(str(certificate), "good")]
    for content, complaint in ((b"bad", "does not take it"), (b"\xff", "is not in PEM")):
        certificate.write_bytes(content)
        failed = run("renew-certificate", "-s", "/s", "--certificate", str(certificate))
        assert (failed.exit_code, complaint in failed.stderr) == (1, True)
    certificate.unlink()
    assert "No such file" in run("renew-certificate", "-t", str(topology)).stderr
    assert run("renew-certificate", "-s", "/s").exit_code == 2


def test_render_without_options_is_the_default() -> None:
    result = run("render")

    assert (result.exit_code, result.stdout, result.stderr) == (0, render(default_topology()), "")


def test_render_flags() -> None:
    result = run(
        "render", "--node", "a=10.0.0.1:1,2,3", "--node", "b=10.0.0.2:1,2,3", "--bind", "*:80", "--bind", "*:81",
        "--socket", "/run/lb", "--stickiness", "cookie", "--same-site", "Lax", "--statistics", "", "--log", "stderr",
        "--ping-interval", "10", "--certificate", "/c.pem",
    )  # fmt: skip
    expected = build(
        {
            "nodes": [
                {"name": "a", "host": "10.0.0.1", "client_port": 1, "admin_port": 2, "agent_port": 3},
                {"name": "b", "host": "10.0.0.2", "client_port": 1, "admin_port": 2, "agent_port": 3},
            ],
            "frontend": {"bind": ["*:80", "*:81"], "same_site": "Lax", "certificate": "/c.pem"},
            "runtime_socket": "/run/lb",
            "stickiness": "cookie",
            "statistics": {"bind": ""},
            "log": "stderr",
            "ping_interval": 10,
        }
    )

    assert (result.exit_code, result.stdout) == (0, render(expected))


def test_flags_override_the_file_setting_by_setting(tmp_path: Path) -> None:
    file = tmp_path / "lb.toml"
    file.write_text('stickiness = "off"\n[frontend]\nbind = ["*:80"]\ncookie = "X"\n')

    result = run("render", "--topology", str(file), "--bind", "*:81", "--stickiness", "cookie")

    assert result.exit_code == 0
    assert "bind *:81\n" in result.stdout
    assert "bind *:80\n" not in result.stdout
    assert "cookie X insert" in result.stdout


def test_wrong_topology_is_a_usage_error(tmp_path: Path) -> None:
    file = tmp_path / "lb.toml"
    file.write_text('log = "a b"\nfrontend = 3\n')

    result = run("render", "-t", str(file), "--bind", "*:81")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f'lb: {file} + command line: log = "a b": cannot be written')
    assert all(line.startswith("lb: ") for line in result.stderr.splitlines())
    assert run("render", "-t", str(tmp_path / "absent")).exit_code == 2
    assert run("render", "--node", "x").exit_code == 2
    assert run("render", "--stickiness", "x").exit_code == 2
    assert run("nonsense").exit_code == 2


def test_output_replaces_the_file(tmp_path: Path) -> None:
    target = tmp_path / "haproxy.cfg"
    target.write_text("old")

    result = run("render", "--output", str(target))

    assert (result.exit_code, result.output) == (0, "")
    assert target.read_text() == render(default_topology())
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [target]
    assert run("render", "--output", "-").stdout == render(default_topology())


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()

    for target in (tmp_path / "absent" / "haproxy.cfg", tmp_path / "folder"):
        result = run("render", "--output", str(target))

        assert result.exit_code == 1
        assert result.stderr.startswith(f"lb: cannot write {target}: ")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_show(runtimes: list[FakeRuntime]) -> None:
    result = run("show")

    assert result.exit_code == 0
    assert result.stdout == (
        "NODE      ADDRESS         ALIVE  READY  WANTED  TAKES  SESSIONS  SINCE  CHECK\n"
        "n1        127.0.0.1:8101  yes    yes    ready   all    104       3h     L7OK\n"
        "node-two  [::1]:8102      -      no     maint   none   1         59s    -\n"
        "n3        127.0.0.1:8103  NO     yes    drain   none   0         1d     L4CON refused\n"
    )


def test_show_json(runtimes: list[FakeRuntime]) -> None:
    shown = json.loads(run("show", "--json").stdout)

    assert [node["node"] for node in shown] == ["n1", "node-two", "n3"]
    assert shown[0]["takes"] == "all"
    assert shown[2]["check"] == {"status": "L4CON", "text": "refused"}


@pytest.mark.parametrize(
    ("command", "wanted", "words"),
    [("drain", Wanted.DRAIN, "drained"), ("ready", Wanted.READY, "ready"), ("maint", Wanted.MAINT, "in maintenance")],
)
def test_steering(runtimes: list[FakeRuntime], command: str, wanted: Wanted, words: str) -> None:
    result = run(command, "node-two")

    assert (result.exit_code, result.stdout) == (0, f"node-two: {words}; 1 connection now, takes none\n")
    assert runtimes[0].wanted == [("node-two", wanted)]
    assert json.loads(run(command, "n1", "--json").stdout)["sessions"] == 104


@pytest.mark.parametrize(("node", "message"), [("n9", "there is no node 'n9'"), ("away", "cannot reach HAProxy")])
def test_what_fails_at_haproxy(runtimes: list[FakeRuntime], node: str, message: str) -> None:
    result = run("drain", node)

    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"lb: {message}\n")


def test_which_socket(runtimes: list[FakeRuntime], tmp_path: Path) -> None:
    file = tmp_path / "lb.toml"
    file.write_text('runtime_socket = "/run/from-file"\n')

    run("show")
    run("show", "--topology", str(file))
    run("show", LB_SOCKET="/run/from-environment")
    run("show", "--socket", "/run/from-flag", LB_SOCKET="/run/from-environment")

    assert [runtime.address for runtime in runtimes] == [
        default_topology().runtime_socket, "/run/from-file", "/run/from-environment", "/run/from-flag",
    ]  # fmt: skip


def test_module_and_help() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "lb", "--help"], capture_output=True, text=True, check=True, timeout=30
    )

    assert all(command in shown.stdout for command in ("render", "show", "drain", "ready", "maint"))
