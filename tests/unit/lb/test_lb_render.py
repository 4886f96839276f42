"""The rendered configuration: the checked-in file, HAProxy's own opinion, and what each variant must contain."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lb.reference import refresh
from lb.render import render
from lb.topology import build, default_topology
from tests.support.certificates import Authority
from tests.support.haproxy import require_haproxy

ROOT = Path(__file__).parents[3]
NODE = {"name": "n1", "client_port": 1, "admin_port": 2, "agent_port": 3}

TLS = {"certificate": "CERTIFICATE"}
"""Replaced by the path of a real one."""

VARIANTS: dict[str, dict[str, Any]] = {
    "TLS": {"frontend": TLS},
    "TLS with everything": {
        "frontend": TLS | {"http2": False, "hsts": 31_536_000, "bind": ["127.0.0.1:8443", "[::1]:8443"]},
        "nodes_tls": {"ca": "AUTHORITY", "certificate": "CERTIFICATE", "admin": True},
        "nodes": [NODE | {"tls_name": "n1.internal"}, NODE | {"name": "n2", "host": "localhost", "client_port": 4}],
    },
    "TLS to the nodes only": {"nodes_tls": {"ca": "AUTHORITY"}, "nodes": [NODE | {"host": "localhost"}]},
    "default": {},
    "cookie": {"stickiness": "cookie"},
    "off": {"stickiness": "off"},
    "syslog": {"log": "127.0.0.1:514"},
    "no statistics": {"statistics": {"bind": ""}},
    "a bounded rate of connections": {"frontend": {"connection_rate": 500}},
    "several binds": {"frontend": {"bind": ["127.0.0.1:8080", "[::1]:8080", "*:8081"], "accept_proxy": True}},
    "process": {"process": {"connections": 100, "user": "nobody"}},
    "one IPv6 node": {"nodes": [NODE | {"host": "::1"}]},
    "nodes by name": {"nodes": [NODE | {"host": "localhost"}]},
    "fractions": {"timeouts": {"connect": 0.25, "server": 1.5, "server_fin": 0.001}},
}


def lines(**settings: Any) -> list[str]:
    """The rendered lines that are not comments, stripped."""
    return [line.strip() for line in render(build(settings)).splitlines() if not line.lstrip().startswith("#")]


def test_checked_in_file_is_what_is_rendered() -> None:
    checked_in = (ROOT / "haproxy.cfg").read_text()

    assert render(default_topology()) == checked_in, "run: lb render --output haproxy.cfg"


def test_reference_page_lists_the_settings_of_today() -> None:
    page = (ROOT / "docs/reference/lb.md").read_text()

    assert refresh(page) == page, "run: python -m lb.reference docs/reference/lb.md"


def test_page_without_marks_is_no_reference_page() -> None:
    with pytest.raises(ValueError, match="begin"):
        refresh("no marks")


@pytest.mark.haproxy
@pytest.mark.parametrize("variant", VARIANTS)
def test_haproxy_accepts_it_without_a_warning(variant: str, tmp_path: Path, authority: Authority) -> None:
    config = tmp_path / "haproxy.cfg"
    rendered = render(build(VARIANTS[variant]))
    files = {"CERTIFICATE": authority.issue("haproxy"), "AUTHORITY": authority.file}
    config.write_text(re.sub("|".join(files), lambda found: str(files[found[0]]), rendered))

    # -dW turns warnings into errors.
    checked = subprocess.run(
        [require_haproxy(), "-c", "-dW", "-f", str(config)], capture_output=True, text=True, check=False, timeout=30
    )

    assert checked.returncode == 0, checked.stderr
    assert "WARNING" not in checked.stderr


@pytest.mark.promise("P8")
def test_nothing_secret_can_reach_the_log() -> None:
    (log_format,) = [line for line in lines() if line.startswith("log-format")]

    fields = set(re.findall(r"%(?:\{[^}]*\})?([A-Za-z]+)", log_format))
    # Requests with their query, and captured headers and cookies.
    assert not fields & {"r", "HU", "HQ", "hr", "hrl", "hs", "hsl", "CC", "CS"}
    assert "HP" in fields
    assert not [line for line in lines() if "capture" in line or "httplog" in line]


def test_alive_is_asked_at_the_admin_port_and_ready_of_the_agent() -> None:
    servers = [line for line in lines() if line.startswith("server ")]

    assert servers[0] == "server n1 127.0.0.1:8101 check port 9101 agent-port 9201"
    assert "http-check send meth GET uri /healthz ver HTTP/1.1 hdr Host gateway" in lines()
    assert "readyz" not in render(default_topology())


@pytest.mark.parametrize(("stickiness", "hint", "cookie"), [("hint", 2, 0), ("cookie", 2, 1), ("off", 0, 0)])
def test_stickiness(stickiness: str, hint: int, cookie: int) -> None:
    rendered = lines(stickiness=stickiness)

    assert sum(line.startswith("use-server ") for line in rendered) == hint
    assert sum(line.startswith("cookie ") for line in rendered) == cookie
    assert sum(line.endswith(" cookie n1") for line in rendered) == cookie


def test_certificate_turns_everything_to_tls() -> None:
    rendered = lines(stickiness="cookie", frontend={"bind": ["*:443", "*:444"], "certificate": "/c.pem"})

    assert [line for line in rendered if line.startswith("bind *")] == [
        "bind *:443 ssl crt /c.pem alpn h2,http/1.1",
        "bind *:444 ssl crt /c.pem alpn h2,http/1.1",
    ]
    assert "http-request set-header X-Forwarded-Proto https" in rendered
    assert 'cookie GATEWAY_NODE insert indirect nocache httponly secure attr "SameSite=Strict"' in rendered
    assert any(line.startswith("ssl-default-bind-options ssl-min-ver TLSv1.2") for line in rendered)
    assert not any("ssl" in line for line in lines())


def test_nodes_must_prove_who_they_are() -> None:
    nodes = [NODE | {"host": "10.0.0.1", "tls_name": "n1.internal"}, NODE | {"name": "n2", "host": "n2.internal"}]
    rendered = lines(nodes_tls={"ca": "/ca.pem", "certificate": "/own.pem", "admin": True}, nodes=nodes)

    assert "ssl-server-verify required" in rendered
    (default,) = [line for line in rendered if line.startswith("default-server ssl")]
    assert (
        default
        == "default-server ssl verify required ca-file /ca.pem crt /own.pem alpn http/1.1 check-ssl check-alpn http/1.1"
    )
    servers = [line for line in rendered if line.startswith("server ")]
    for server, name in zip(servers, ("n1.internal", "n2.internal"), strict=True):
        assert f" sni str({name}) verifyhost {name} check-sni {name}" in server


def test_times_have_units() -> None:
    rendered = lines(timeouts={"connect": 0.25, "server": 1.5, "server_fin": 0.001, "tunnel": 3600})

    assert "timeout connect 250ms" in rendered
    assert "timeout server 1500ms" in rendered
    assert "timeout server-fin 1ms" in rendered
    assert "timeout tunnel 3600s" in rendered


def test_comments_give_reasons_and_fit_the_width() -> None:
    comments = [line for line in render(default_topology()).splitlines() if line.lstrip().startswith("#")]

    assert len(comments) > 30
    assert all(len(line) <= 120 for line in comments)


def test_same_topology_same_text() -> None:
    assert render(build({})) == render(default_topology())
