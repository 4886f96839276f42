"""Image, compose file, units and manifests: what can be checked of them without a Docker daemon or a cluster is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from redis.asyncio import Redis
from redis.exceptions import ConnectionError  # noqa: A004 - that of redis-py

import lb.render
import lb.topology
from gateway.adapters.redis.session_ends import ENDED_MOST
from gateway.core.topics.topics import SESSION_PARTITIONS, TOPIC_PARTITIONS
from gateway.local.ports import free_port
from gateway.local.processes import ManagedProcess, find_program
from gateway.settings import OTHER_VARIABLES, SETTINGS, Settings
from tests.deploy.promtool import PROMETHEUS, ROOT
from tests.support.times import scaled

DEPLOY: Final = ROOT / "deploy"
DOCKERFILE: Final = DEPLOY / "docker" / "Dockerfile"
UNIT: Final = DEPLOY / "systemd" / "gateway@.service"
MANIFESTS: Final = DEPLOY / "kubernetes" / "base"
OVERLAY: Final = DEPLOY / "kubernetes" / "overlays" / "example"
NODES_TLS: Final = DEPLOY / "kubernetes" / "components" / "nodes-tls"
COMPOSE: Final[dict[str, Any]] = yaml.safe_load((DEPLOY / "compose" / "compose.yml").read_text("utf-8"))
NODES: Final = {name: each for name, each in COMPOSE["services"].items() if re.fullmatch(r"n\d", name)}
DRAIN_SECONDS: Final = 30
"""Default of drain_timeout; a stop must be given longer."""
MOST_EXPOSURE: Final = 1.5
"""What systemd-analyze may find at most, of 10."""


def variables(text: str) -> set[str]:
    return set(re.findall(r"\bGATEWAY_[A-Z_]*[A-Z]\b", text))


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(DEPLOY.rglob("*")) if path.is_file() and "secrets" not in path.parts],
    ids=lambda path: str(path.relative_to(DEPLOY)),
)
def test_every_variable_is_a_setting(path: Path) -> None:
    known = {each.variable for each in SETTINGS.values()} | set(OTHER_VARIABLES)
    assert variables(path.read_text("utf-8")) - known == set()


# --- The image --------------------------------------------------------------------------------------------------------


def test_hadolint_finds_nothing() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    checked = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, check=False, timeout=scaled(60))
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n(?:\s*#.*\n)*", " ", DOCKERFILE.read_text("utf-8"))
    words = [line.split(" ", 1) for line in text.splitlines() if re.match("[A-Z]+ ", line)]
    return [(name, rest) for name, rest in words]


def test_the_image_is_small_and_belongs_to_nobody() -> None:
    stages = [index for index, (name, _) in enumerate(instructions()) if name == "FROM"]
    assert len(stages) == 2
    last = instructions()[stages[-1] :]
    assert dict(last)["USER"].split(":")[0].isdecimal()
    assert dict(last)["USER"].split(":")[0] != "0"
    assert "RUN" not in dict(last), "the last stage only takes over what was built"
    for name, rest in instructions():
        if name == "FROM":
            assert re.match(r"[\w/.]+:(?!latest)[\w.-]+", rest), f"{rest} has no version"


def test_what_is_copied_is_not_ignored() -> None:
    lines = (DEPLOY / "docker" / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    kept = [line[1:] for line in lines if line.startswith("!")]
    copied = [
        source
        for name, rest in instructions()
        if name == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
    ]
    assert copied
    assert [each for each in copied if not any(fnmatch(each, f"{keep}*") for keep in kept)] == []
    assert [each for each in copied if not (ROOT / each).exists()] == []


# --- Compose ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_every_container_is_confined(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory"}
    assert name in NODES or service["healthcheck"], "nodes have that of the image"
    assert service["image"] == "session-gateway" or re.search(r":v?\d", service["image"]), "the image has a version"
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    for volume in service.get("volumes", ()):
        source = volume["source"] if isinstance(volume, dict) else volume.split(":")[0]
        made = source.startswith("./secrets/")
        assert made or source in COMPOSE["volumes"] or (DEPLOY / "compose" / source).exists(), source


def test_the_nodes_are_those_that_haproxy_and_prometheus_know() -> None:
    topology = tomllib.loads((DEPLOY / "compose" / "topology.toml").read_text("utf-8"))
    assert [each["name"] for each in topology["nodes"]] == sorted(NODES)
    scraped = yaml.safe_load((PROMETHEUS / "targets" / "gateway.yml").read_text("utf-8"))
    assert {each["labels"]["node"] for each in scraped} == set(NODES)
    for name, node in NODES.items():
        assert node["environment"]["GATEWAY_NODE"] == name
        assert node["environment"]["GATEWAY_ADMIN_ADVERTISE"] == f"{name}:9101"
        assert node["environment"]["GATEWAY_LINK_ADVERTISE"] == f"{name}:8301"
        assert int(node["stop_grace_period"].removesuffix("s")) > DRAIN_SECONDS


def test_a_console_is_reached_from_the_host_alone() -> None:
    assert {name: node["ports"] for name, node in NODES.items()} == {
        name: [f"127.0.0.1:{9100 + number}:9101"] for number, name in enumerate(NODES, 1)
    }


# --- HAProxy, Redis ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "folder", [DEPLOY / "compose", MANIFESTS, NODES_TLS], ids=["compose", "kubernetes", "nodes-tls"]
)
def test_the_configuration_of_haproxy_is_what_lb_renders(folder: Path) -> None:
    topology = lb.topology.build(tomllib.loads((folder / "topology.toml").read_text("utf-8")), source=str(folder))
    assert (folder / "haproxy.cfg").read_text("utf-8") == lb.render.render(topology), "run lb render, as it says"


@pytest.mark.promise("P20")
def test_all_topics_and_sessions_together_fit_the_redis_that_is_shipped() -> None:
    """P20: by the defaults nobody fills Redis with values, updates or sessions."""
    (given,) = re.findall(r"(?m)^maxmemory (\d+)gb$", (DEPLOY / "redis" / "redis.conf").read_text("utf-8"))
    defaults = Settings()
    marked_late = 17 / 16  # a stream may hold a block more than its bound, see scripts/sizes.lua
    rounded_up = 1.25  # by the allocator of Redis, at worst
    held = TOPIC_PARTITIONS * (defaults.stream_bytes * marked_late + defaults.limit_partition_bytes) * rounded_up
    assert held < 0.66 * int(given) * 1024**3
    held += defaults.limit_session_bytes * rounded_up
    held += (SESSION_PARTITIONS + TOPIC_PARTITIONS) * ENDED_MOST * 128  # records of ended sessions
    held += 64 * 1024**2  # backlog of replicas
    assert held < 0.95 * int(given) * 1024**3
    assert 0 < defaults.limit_principal_session_bytes <= defaults.limit_session_bytes // 2


@pytest.mark.redis
async def test_redis_runs_with_the_settings_that_matter(tmp_path: Path) -> None:
    wanted = {
        "maxmemory-policy": "noeviction",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "repl-backlog-size": str(64 * 1024**2),
        "io-threads": "1",
    }
    port = free_port()
    server = ManagedProcess(
        "redis",
        [
            find_program("redis-server"),
            str(DEPLOY / "redis" / "redis.conf"),
            *("--bind", "127.0.0.1", "--port", str(port)),
        ],
        log=tmp_path / "redis.log",
        directory=tmp_path,
    )

    async def answers() -> bool:
        try:
            return bool(await client.ping())
        except ConnectionError:
            return False

    async with Redis(host="127.0.0.1", port=port, decode_responses=True) as client, server:
        await server.ready(answers, timeout=scaled(20))
        for name, value in wanted.items():
            assert await client.config_get(name) == {name: value}


# --- systemd ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit as an instance, with a program that is there."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd here")
    program = tmp_path / "gateway"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = tmp_path / "gateway@n1.service"
    path.write_text(UNIT.read_text("utf-8").replace("/opt/gateway/bin/gateway", str(program)))
    return path


def test_systemd_accepts_the_unit(unit: Path) -> None:
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False, timeout=scaled(60)
    )
    complaints = [line for line in (checked.stdout + checked.stderr).splitlines() if "gateway@" in line]
    assert complaints == []
    assert checked.returncode == 0, checked.stderr


def test_systemd_finds_the_unit_confined(unit: Path) -> None:
    checked = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", unit],
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(60),
    )
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", checked.stdout)
    assert exposure is not None, checked.stderr
    assert float(exposure[1]) <= MOST_EXPOSURE


def test_the_node_itself_tells_systemd_of_a_bad_configuration() -> None:
    """Told by a command before it, the mistake would be tried again: only the main process prevents a restart."""
    assert "ExecStartPre=" not in UNIT.read_text("utf-8")


def test_no_program_is_asked_for_that_a_small_system_lacks() -> None:
    commands = re.findall(r"^Exec\w+=[-+!@]*(\S+)", UNIT.read_text("utf-8"), re.MULTILINE)
    assert set(commands) == {"/opt/gateway/bin/gateway", "/bin/sh"}


def test_a_drain_has_time_before_systemd_kills() -> None:
    seconds = re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text("utf-8"), re.MULTILINE)
    assert seconds is not None
    assert int(seconds[1]) > DRAIN_SECONDS


# --- Kubernetes -------------------------------------------------------------------------------------------------------


def manifests() -> Iterator[dict[str, Any]]:
    for path in sorted(MANIFESTS.glob("*.yaml")):
        if path.name != "kustomization.yaml":
            yield from yaml.safe_load_all(path.read_text("utf-8"))


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [each for each in manifests() if each["kind"] == kind]


def test_every_manifest_is_in_the_kustomization() -> None:
    listed = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text("utf-8"))["resources"]
    assert sorted(listed) == sorted(path.name for path in MANIFESTS.glob("*.yaml") if path.name != "kustomization.yaml")


@pytest.mark.parametrize("workload", [*of_kind("StatefulSet"), *of_kind("Deployment")], ids=lambda each: each["kind"])
def test_pods_are_confined(workload: dict[str, Any]) -> None:
    pod = workload["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        confined = container["securityContext"]
        assert confined["readOnlyRootFilesystem"] is True
        assert confined["allowPrivilegeEscalation"] is False
        assert confined["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert container["resources"]["limits"].keys() == {"memory"}


def test_nodes_are_probed_stopped_and_named_as_they_must_be() -> None:
    (nodes,) = of_kind("StatefulSet")
    pod = nodes["spec"]["template"]["spec"]
    (node,) = pod["containers"]
    assert node["livenessProbe"]["httpGet"]["path"] == node["startupProbe"]["httpGet"]["path"] == "/healthz"
    assert node["readinessProbe"]["httpGet"]["path"] == "/readyz"
    pause = re.search(r"sleep\((\d+)\)", node["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert pause is not None
    assert pod["terminationGracePeriodSeconds"] > int(pause[1]) + DRAIN_SECONDS
    topology = tomllib.loads((MANIFESTS / "topology.toml").read_text("utf-8"))
    name, service = nodes["metadata"]["name"], nodes["spec"]["serviceName"]
    namespace = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text("utf-8"))["namespace"]
    assert [each["name"] for each in topology["nodes"]] == [f"{name}-{n}" for n in range(nodes["spec"]["replicas"])]
    for each in topology["nodes"]:
        assert each["host"] == f"{each['name']}.{service}.{namespace}.svc.cluster.local"
    headless = next(each for each in of_kind("Service") if each["metadata"]["name"] == service)
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["publishNotReadyAddresses"] is True


def test_haproxy_listens_until_nobody_is_sent_to_it_any_more() -> None:
    """It stops to listen at the signal, which comes while Kubernetes still takes its address out of the service."""
    (balancer,) = of_kind("Deployment")
    pod = balancer["spec"]["template"]["spec"]
    (haproxy,) = pod["containers"]
    name, seconds = haproxy["lifecycle"]["preStop"]["exec"]["command"]
    assert name == "sleep"
    assert int(seconds) >= 5
    (stop,) = re.findall(r"(?m)^    hard-stop-after (\d+)s$", (MANIFESTS / "haproxy.cfg").read_text("utf-8"))
    assert pod["terminationGracePeriodSeconds"] > int(seconds) + int(stop)


def test_selectors_find_pods() -> None:
    pods = [
        each["spec"]["template"]["metadata"]["labels"] for each in (*of_kind("StatefulSet"), *of_kind("Deployment"))
    ]
    found = [each["spec"]["selector"] for each in of_kind("Service")]
    found += [each["spec"]["selector"]["matchLabels"] for each in of_kind("PodDisruptionBudget")]
    found += [each["spec"]["podSelector"]["matchLabels"] for each in of_kind("NetworkPolicy")]
    assert len(found) == 6
    for selector in found:
        assert sum(selector.items() <= labels.items() for labels in pods) == 1


def literals() -> dict[str, str]:
    """The variables that all pods get from the configuration."""
    generators = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text("utf-8"))["configMapGenerator"]
    (gateway,) = [each["literals"] for each in generators if each["name"] == "gateway"]
    return dict(each.split("=", 1) for each in gateway)


def test_only_who_has_to_reaches_nodes_and_the_statistics_of_haproxy() -> None:
    """The port of statistics names every node; the port of links is for nodes."""
    allowed = {
        (policy["metadata"]["name"], port["port"]): [sorted(each) for each in rule.get("from", [])]
        for policy in of_kind("NetworkPolicy")
        for rule in policy["spec"]["ingress"]
        for port in rule["ports"]
        if port["port"] != "admin"
    }
    assert allowed == {
        ("gateway", "clients"): [["podSelector"]],
        ("gateway", "agent"): [["podSelector"]],
        ("gateway", "link"): [["podSelector"]],
        ("gateway-haproxy", "clients"): [],
        ("gateway-haproxy", "metrics"): [["namespaceSelector"]],
    }
    pods = {
        each["metadata"]["name"]: {port["name"] for port in each["spec"]["template"]["spec"]["containers"][0]["ports"]}
        for each in (*of_kind("StatefulSet"), *of_kind("Deployment"))
    }
    named = {(name, port) for name, ports in pods.items() for port in ports}
    assert named == {*allowed, ("gateway", "admin")}, "a port that no policy speaks of is closed to all"


def test_the_address_of_a_client_is_what_haproxy_says() -> None:
    """Without it every client has HAProxy's address, and all share the limits of one."""
    networks = [ip_network(each) for each in literals()["GATEWAY_TRUSTED_PROXIES"].split(",")]
    for address in ("10.42.3.4", "100.64.0.9", "172.17.0.2", "192.168.4.4", "fd00:10:244::5"):
        assert any(ip_address(address) in each for each in networks), address
    assert not any(ip_address("203.0.113.7") in each for each in networks)


def test_kubernetes_accepts_what_kustomize_makes(tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl here")
    made = subprocess.run(
        [kubectl, "kustomize", OVERLAY], capture_output=True, text=True, check=False, timeout=scaled(60)
    )
    assert made.returncode == 0, made.stderr
    file = tmp_path / "all.yaml"
    # Kinds of the Prometheus operator have no published schema in the package that validates.
    kinds = [each for each in yaml.safe_load_all(made.stdout) if each["kind"] != "PodMonitor"]
    assert len(kinds) > 9
    file.write_text(yaml.safe_dump_all(kinds))
    validate = Path(sys.executable).with_name("kubernetes-validate")
    checked = subprocess.run(
        [validate, "--strict", "--no-warn", file], capture_output=True, text=True, check=False, timeout=scaled(60)
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def kustomized(folder: Path, text: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What kustomize makes of an overlay, by kind and name; the hash that follows a name is left out."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl here")
    (folder / "kustomization.yaml").write_text(text)
    made = subprocess.run(
        [kubectl, "kustomize", folder], capture_output=True, text=True, check=False, timeout=scaled(60)
    )
    assert made.returncode == 0, made.stderr
    return {
        (each["kind"], re.sub(r"-[a-z0-9]{10}$", "", each["metadata"]["name"])): each
        for each in yaml.safe_load_all(made.stdout)
    }


@pytest.mark.parametrize("below", [OVERLAY, MANIFESTS], ids=["example", "base"])
def test_whoever_asks_the_admin_port_speaks_tls_where_it_does(below: Path, tmp_path: Path) -> None:
    resource, component = (Path(os.path.relpath(each, tmp_path)) for each in (below, NODES_TLS))
    found = kustomized(tmp_path, f"namespace: session-gateway\nresources: [{resource}]\ncomponents: [{component}]\n")
    variables = found["ConfigMap", "gateway"]["data"]
    assert variables["GATEWAY_AUTH"], "the others stay"
    pod = found["StatefulSet", "gateway"]["spec"]["template"]["spec"]
    (node,) = pod["containers"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert node[probe]["httpGet"]["scheme"] == "HTTPS"
    (secret,) = {each["secret"]["secretName"] for each in pod["volumes"] if each["name"] == "tls"}
    mounted = {each["mountPath"] for each in node["volumeMounts"]}
    for name in ("TLS_CERTIFICATE", "TLS_KEY", "ADMIN_TLS_CERTIFICATE", "ADMIN_TLS_KEY", "ADMIN_TLS_CA"):
        assert str(Path(variables[f"GATEWAY_{name}"]).parent) in mounted
    # Nodes ask each other by names that the certificate has, and that are made of one that stands before.
    environment = [each["name"] for each in node["env"]]
    (advertised,) = (each["value"] for each in node["env"] if each["name"] == "GATEWAY_ADMIN_ADVERTISE")
    assert environment.index("GATEWAY_NODE") < environment.index("GATEWAY_ADMIN_ADVERTISE")
    topology = tomllib.loads((NODES_TLS / "topology.toml").read_text("utf-8"))
    assert [advertised.replace("$(GATEWAY_NODE)", each["name"]) for each in topology["nodes"]] == [
        f"{each['host']}:{each['admin_port']}" for each in topology["nodes"]
    ]
    balancer = found["Deployment", "gateway-haproxy"]["spec"]["template"]["spec"]
    (ca,) = (each["mountPath"] for each in balancer["containers"][0]["volumeMounts"] if each["name"] == "nodes-ca")
    assert topology["nodes_tls"] == {"ca": f"{ca}/ca.crt", "admin": True}
    assert "check-ssl" in found["ConfigMap", "haproxy"]["data"]["haproxy.cfg"]
    (volume,) = (each["secret"] for each in balancer["volumes"] if each["name"] == "nodes-ca")
    assert volume["secretName"] == secret
    assert [each["key"] for each in volume["items"]] == ["ca.crt"], "HAProxy needs no key of the nodes"
    if below == OVERLAY:
        (endpoint,) = found["PodMonitor", "gateway"]["spec"]["podMetricsEndpoints"]
        assert endpoint["scheme"] == "https"
        assert endpoint["tlsConfig"]["serverName"] == topology["nodes"][0]["host"]


def test_tls_to_the_nodes_changes_nothing_else_of_the_topology() -> None:
    base, tls = (tomllib.loads((folder / "topology.toml").read_text("utf-8")) for folder in (MANIFESTS, NODES_TLS))
    assert {name: value for name, value in tls.items() if name != "nodes_tls"} == base


def test_an_overlay_has_more_nodes_as_the_page_says(tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl here")
    page = (MANIFESTS.parents[1] / "README.md").read_text("utf-8")
    (said,) = (
        block for block in re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) if "replicas" in block
    )
    base = Path(os.path.relpath(MANIFESTS, tmp_path))
    (tmp_path / "kustomization.yaml").write_text(f"namespace: session-gateway\nresources: [{base}]\n{said}")
    topology = (MANIFESTS / "topology.toml").read_text("utf-8")
    block = topology[topology.rindex("[[nodes]]") :]
    topology += "".join(f"\n{block.replace('gateway-2', f'gateway-{number}')}" for number in (3, 4))
    (tmp_path / "topology.toml").write_text(topology)
    lb = Path(sys.executable).with_name("lb")
    subprocess.run(
        [lb, "render", "--topology", "topology.toml", "--output", "haproxy.cfg"],
        cwd=tmp_path,
        check=True,
        timeout=scaled(60),
    )

    made = subprocess.run(
        [kubectl, "kustomize", tmp_path], capture_output=True, text=True, check=False, timeout=scaled(60)
    )

    assert made.returncode == 0, made.stderr
    found = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(made.stdout)}
    assert found["StatefulSet", "gateway"]["spec"]["replicas"] == 5
    (haproxy,) = (each for (kind, name), each in found.items() if kind == "ConfigMap" and name.startswith("haproxy-"))
    assert all(f"gateway-{number}.gateway-nodes" in haproxy["data"]["haproxy.cfg"] for number in range(5))
    (mounted,) = (
        volume["configMap"]["name"]
        for volume in found["Deployment", "gateway-haproxy"]["spec"]["template"]["spec"]["volumes"]
        if "configMap" in volume
    )
    assert mounted == haproxy["metadata"]["name"], "pods of HAProxy start anew with the new file"
