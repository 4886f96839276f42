"""Topologies: defaults, files, flags, and errors that say file, key, value and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lb.errors import InvalidTopology, Problem
from lb.names import SameSite, Stickiness
from lb.settings import SOCKET_PATH_BYTES_MAX
from lb.topology import Topology, build, default_topology, load, parse_node

NODE = {"name": "n1", "client_port": 1, "admin_port": 2, "agent_port": 3}


def complaint(settings: dict[str, Any]) -> str:
    with pytest.raises(InvalidTopology) as refused:
        build(settings, source="lb.toml")
    return str(refused.value)


def test_default_is_three_local_nodes() -> None:
    topology = default_topology()

    assert [(node.name, node.host, node.client_port, node.admin_port, node.agent_port) for node in topology.nodes] == [
        ("n1", "127.0.0.1", 8101, 9101, 9201),
        ("n2", "127.0.0.1", 8102, 9102, 9202),
        ("n3", "127.0.0.1", 8103, 9103, 9203),
    ]
    assert topology.frontend.bind == ("127.0.0.1:8080",)
    assert topology.stickiness is Stickiness.HINT
    assert build({}) == topology


def test_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "lb.toml"
    path.write_text(
        """
        stickiness = "cookie"
        runtime_socket = "/run/haproxy/gateway.sock"

        [frontend]
        bind = ["*:443", "[::]:443"]
        certificate = "/etc/haproxy/gateway.pem"
        same_site = "None"

        [statistics]
        bind = ""

        [[nodes]]
        name = "eu-1"
        host = "gateway-1.internal"
        client_port = 8100
        admin_port = 9100
        agent_port = 9200
        """
    )

    topology = build(load(path), source=str(path))

    assert topology.frontend.bind == ("*:443", "[::]:443")
    assert topology.frontend.same_site is SameSite.NONE
    assert topology.statistics.bind is None
    assert topology.nodes[0].host == "gateway-1.internal"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"stickyness": "hint"}, 'lb.toml: stickyness = "hint": is not a setting; did you mean stickiness?'),
        (
            {"frontend": {"zzz": 1}},
            "lb.toml: frontend.zzz = 1: is not a setting; remove it; known here are: accept_proxy",
        ),
        ({"frontend": 3}, "lb.toml: frontend = 3: is not a section; write it as [frontend]"),
        (
            {"frontend": {"hsts": 60}},
            "lb.toml: frontend.hsts = 60: is ignored by browsers unless it comes over TLS; set",
        ),
        ({"frontend": {"certificate": "c", "hsts": -1}}, "lb.toml: frontend.hsts = -1: "),
        ({"nodes_tls": {"certificate": "c"}}, 'nodes_tls.certificate = "c": has no effect without nodes_tls.ca; set'),
        ({"nodes_tls": {"admin": True}}, "nodes_tls.admin = true: has no effect without nodes_tls.ca; set"),
        (
            {"nodes_tls": {"ca": "c"}},
            'lb.toml: nodes.1.host = "127.0.0.1": is an address, and HAProxy looks only for names in certificates; say',
        ),
        ({"nodes": 3}, "lb.toml: nodes = 3: is not a list; it means: "),
        ({"nodes": []}, "lb.toml: nodes = []: lists no node; add a section [[nodes]]"),
        (
            {"nodes": [NODE | {"client_port": 99999}]},
            "lb.toml: nodes.1.client_port = 99999: is not a port; give a whole",
        ),
        ({"nodes": [NODE | {"agent_port": True}]}, "lb.toml: nodes.1.agent_port = true: is not a port"),
        (
            {"nodes": [NODE | {"name": "n1\nglobal"}]},
            'lb.toml: nodes.1.name = "n1\\nglobal": is not a name; use 1 to 32',
        ),
        ({"nodes": [NODE | {"host": "a b"}]}, 'lb.toml: nodes.1.host = "a b": is not a host; give a host name'),
        ({"nodes": [{"name": "n1"}]}, "lb.toml: nodes.1.client_port: is missing; add it: Port for clients"),
        ({"nodes": [NODE, NODE]}, 'lb.toml: nodes = "n1": is the name of more than one node; give each node its own'),
        (
            {"nodes": [NODE, NODE | {"name": "n2", "client_port": 4}]},
            "lb.toml: nodes.2.admin_port = 127.0.0.1:2: is taken by nodes.1.admin_port; give it a port of its own",
        ),
        ({"statistics": {"bind": "127.0.0.1:8080"}}, "is taken by frontend.bind.1"),
        ({"frontend": {"bind": []}}, "lb.toml: frontend.bind = []: lists no address; add where clients connect to"),
        (
            {"frontend": {"bind": ["1.2.3.4"]}},
            'lb.toml: frontend.bind.1 = "1.2.3.4": is not an address; give it as HOST',
        ),
        ({"frontend": {"bind": ["::1:80"]}}, "is not an address"),
        (
            {"frontend": {"bind": ["*:0"]}},
            'lb.toml: frontend.bind.1 = "*:0": has no valid port; end it with a port from',
        ),
        ({"frontend": {"bind": [7]}}, "lb.toml: frontend.bind.1 = 7: is not an address"),
        ({"frontend": {"same_site": "None"}}, 'lb.toml: frontend.same_site = "None": is ignored by browsers unless'),
        ({"frontend": {"certificate": "/a b.pem"}}, "cannot be written into haproxy.cfg; use only letters"),
        (
            {"frontend": {"accept_proxy": "yes"}},
            'lb.toml: frontend.accept_proxy = "yes": input should be a valid boolean',
        ),
        (
            {"stickiness": "glue"},
            "lb.toml: stickiness = \"glue\": input should be 'hint', 'cookie' or 'off'; it means: How",
        ),
        ({"timeouts": {"server": "2s"}}, 'lb.toml: timeouts.server = "2s": is not a time; give seconds as a number'),
        ({"timeouts": {"server": 0}}, "lb.toml: timeouts.server = 0: is not a time"),
        ({"timeouts": {"server": float("nan")}}, "is not a time"),
        (
            {"timeouts": {"tunnel": 30}},
            "lb.toml: timeouts.tunnel = 30: would cut healthy clients, which are silent for up to 20",
        ),
        ({"timeouts": {"server_fin": 5}}, "lb.toml: timeouts.server_fin = 5: makes the second and later tries"),
        (
            {"checks": {"fall": 0}},
            "lb.toml: checks.fall = 0: input should be greater than or equal to 1; it means: Failed",
        ),
        (
            {"runtime_socket": "/" + "x" * SOCKET_PATH_BYTES_MAX},
            "is too long for a unix socket; choose one of at most 85",
        ),
        ({"process": {"user": "root; evil"}}, "is not a name"),
    ],
)
def test_error_names_file_key_value_and_remedy(settings: dict[str, Any], expected: str) -> None:
    assert expected in complaint(settings)


def test_all_problems_are_told_at_once() -> None:
    text = complaint({"stickyness": 1, "log": "a b", "nodes": [{"name": ""}]})

    assert len(text.splitlines()) == 6
    assert all(line.startswith("lb.toml: ") for line in text.splitlines())


def test_long_values_are_shortened() -> None:
    assert "…" in complaint({"log": "a " * 100})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "cannot be read (No such file or directory); check the path"),
        (b"nodes = [", "is not TOML (.*); mend that line"),
        (b"\xff\xfe", "is not text in UTF-8; save it as UTF-8"),
    ],
)
def test_unreadable_file(tmp_path: Path, content: bytes | None, expected: str) -> None:
    path = tmp_path / "lb.toml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(InvalidTopology, match=expected.replace("(No", r"\(No").replace("ry)", r"ry\)")) as refused:
        load(path)
    assert str(refused.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "host"),
    [("n7=10.0.0.7:1,2,3", "10.0.0.7"), ("n7=[::1]:1,2,3", "::1"), ("n7=a.example:1,2,3", "a.example")],
)
def test_node_from_a_flag(text: str, host: str) -> None:
    (node,) = build({"nodes": [parse_node(text)]}).nodes

    assert (node.name, node.host, node.client_port, node.admin_port, node.agent_port) == ("n7", host, 1, 2, 3)


@pytest.mark.parametrize("text", ["", "n1", "n1=host", "n1=host:1,2", "n1=host:1,2,x", "n1=host:1,2,3,4", "host:1,2,3"])
def test_node_flag_of_another_form(text: str) -> None:
    with pytest.raises(InvalidTopology, match="is not a node; give it as NAME=HOST:CLIENT,ADMIN,AGENT"):
        parse_node(text)


def test_topology_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        default_topology().stickiness = Stickiness.OFF


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*Topology.model_fields, "x"]), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from([*Topology.model_fields, "unknown"]), JSON))
def test_whatever_a_file_says_the_error_is_a_topology_error(settings: dict[str, Any]) -> None:
    problems: tuple[Problem, ...] = ()
    try:
        build(settings)
    except InvalidTopology as refused:
        problems = refused.problems or (Problem("", "", "", ""),)

    assert all(problem.complaint and problem.remedy for problem in problems)
