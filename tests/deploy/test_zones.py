"""The examples of two clusters in a zone: what can be checked of them without a Docker daemon or a Kubernetes is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gateway.core.types import NodeId
from tests.deploy.test_packaging import COMPOSE, DEPLOY, NODES
from tests.deploy.test_secrets import PROGRAM, keys_of, must_be_fit, run
from tests.support.times import scaled

pytestmark = pytest.mark.promise("P18")

ZONES: Final[dict[str, Any]] = yaml.safe_load((DEPLOY / "compose" / "zones.yml").read_text("utf-8"))
OVERLAYS: Final = DEPLOY / "kubernetes" / "overlays"
SOUTH: Final = ("s1", "s2")


def secrets_of(service: dict[str, Any]) -> dict[str, str]:
    """Tell which secret a container finds under each name."""
    named = [{"source": each, "target": each} if isinstance(each, str) else each for each in service["secrets"]]
    return {each["target"]: each["source"] for each in named}


def test_the_second_cluster_is_confined_as_the_first_one_is() -> None:
    assert ZONES["services"].keys() == {*NODES, *SOUTH, "redis-south"}
    for name in (*SOUTH, "redis-south"):
        service, like = ZONES["services"][name], COMPOSE["services"]["redis" if name == "redis-south" else "n1"]
        for each in ("image", "read_only", "cap_drop", "security_opt", "restart", "logging", "deploy"):
            assert service[each] == like[each], (name, each)
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert ZONES["services"]["redis-south"]["command"] == COMPOSE["services"]["redis"]["command"]


def test_only_nodes_reach_the_other_cluster_and_no_cluster_the_grid_of_another() -> None:
    assert ZONES["networks"]["zone"] == ZONES["networks"]["grid-south"] == {"internal": True}
    on = {name: set(service["networks"]) for name, service in ZONES["services"].items()}
    assert {name for name, networks in on.items() if "zone" in networks} == {*NODES, *SOUTH}
    assert {name for name, networks in on.items() if "grid-south" in networks} == {*SOUTH, "redis-south"}
    assert not any(networks & {"grid", "clients"} for networks in on.values())


def test_each_node_takes_links_under_its_name_with_the_certificate_of_its_cluster() -> None:
    for name, cluster in {**dict.fromkeys(NODES, "north"), **dict.fromkeys(SOUTH, "south")}.items():
        service = ZONES["services"][name]
        assert service["environment"]["GATEWAY_CLUSTER"] == cluster
        assert service["environment"]["GATEWAY_ZONE_ADVERTISE"] == f"{name}:8401"
        assert secrets_of(service).items() >= {"zone.pem": f"{cluster}.pem", "zone.key": f"{cluster}.key"}.items()
    declared = {*ZONES["secrets"], *COMPOSE["secrets"]}
    for service in ZONES["services"].values():
        assert set(secrets_of(service).values()) <= declared


@pytest.mark.thorough
def test_the_secrets_of_both_clusters_can_be_made_and_fit(tmp_path: Path) -> None:
    for name in ("compose", "redis"):
        (tmp_path / name).mkdir()
    shutil.copy(DEPLOY / "redis" / "users.acl", tmp_path / "redis")
    for name in ("make-secrets", "make-zone-secrets"):
        shutil.copy(DEPLOY / name, tmp_path)
        shutil.copy(DEPLOY / "compose" / name, tmp_path / "compose")
    before: dict[Path, str] = {}
    for _ in range(2):
        for name in ("make-secrets", "make-zone-secrets"):
            run([tmp_path / "compose" / name], GATEWAY=PROGRAM)
        now = {path: path.read_text() for path in (tmp_path / "compose" / "secrets").rglob("*") if path.is_file()}
        assert before in ({}, now), "what is there stays"
        before = now
    declared = {
        name: tmp_path / "compose" / each["file"] for name, each in (COMPOSE["secrets"] | ZONES["secrets"]).items()
    }
    for name, path in declared.items():
        assert path.stat().st_mode & 0o777 == 0o444, f"the user of a container can read {name}"
    for keys in ("secrets/keys", "secrets/south/keys"):
        assert {each.stat().st_mode & 0o777 for each in (tmp_path / "compose" / keys).iterdir()} == {0o444}
    for name in ("zone-secret", "zone-ca.key"):
        assert (tmp_path / "compose" / "secrets" / "zone" / name).stat().st_mode & 0o077 == 0, name
    for name in (*NODES, *SOUTH):
        both = [each["services"][name] for each in (COMPOSE, ZONES) if name in each["services"]]
        environment = {key: value for each in both for key, value in each["environment"].items()}
        places = {
            f"/run/secrets/{target}": declared[source] for each in both for target, source in secrets_of(each).items()
        }
        places["/etc/gateway/policy.toml"] = DEPLOY / "policy.toml"
        (mounted,) = (each for service in both for each in service.get("volumes", ()) if isinstance(each, dict))
        places[mounted["target"]] = tmp_path / "compose" / mounted["source"]
        said = must_be_fit(environment, places, NodeId(name))
        assert keys_of(said)
        assert "zone" in said


@pytest.mark.parametrize("cluster", ["north", "south"])
def test_an_overlay_of_each_cluster_takes_links_and_says_where(cluster: str) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl here")
    made = subprocess.run(
        [kubectl, "kustomize", OVERLAYS / cluster], capture_output=True, text=True, check=False, timeout=scaled(60)
    )
    assert made.returncode == 0, made.stderr
    found = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(made.stdout)}
    (settings,) = [
        each for (kind, name), each in found.items() if kind == "ConfigMap" and re.match("gateway-[^p]", name)
    ]
    assert settings["data"]["GATEWAY_CLUSTER"] == cluster
    assert settings["data"]["GATEWAY_ZONE_ADVERTISE"] == f"gateway.{cluster}.example.com:8401"
    pod = found["StatefulSet", "gateway"]["spec"]["template"]["spec"]
    assert {"name": "zone", "containerPort": 8401} in pod["containers"][0]["ports"]
    assert "/etc/gateway/zone" in {each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}


def test_the_component_opens_the_port_of_zone_links_and_no_other() -> None:
    folder = DEPLOY / "kubernetes" / "components" / "zone"
    kustomization, policy, service = (
        yaml.safe_load((folder / f"{name}.yaml").read_text("utf-8")) for name in ("kustomization", "network", "service")
    )
    settings = dict(each.split("=", 1) for each in kustomization["configMapGenerator"][0]["literals"])
    port = int(settings["GATEWAY_ZONE_LISTEN"].rpartition(":")[2])
    assert policy["spec"]["ingress"] == [{"ports": [{"port": "zone"}]}]
    assert service["spec"]["ports"] == [{"name": "zone", "port": port, "targetPort": "zone"}]
    pod = yaml.safe_load((DEPLOY / "kubernetes" / "base" / "nodes.yaml").read_text("utf-8"))["spec"]["template"]
    for selector in (policy["spec"]["podSelector"]["matchLabels"], service["spec"]["selector"]):
        assert selector.items() <= pod["metadata"]["labels"].items()
    patch = yaml.safe_load(kustomization["patches"][0]["patch"])
    assert patch[0]["value"] == {"name": "zone", "containerPort": port}
    mounted = patch[2]["value"]["mountPath"]
    assert all(value.startswith(f"{mounted}/") for name, value in settings.items() if "_TLS_" in name)


def test_the_programs_of_the_examples_say_how_they_are_used() -> None:
    called = subprocess.run(
        [DEPLOY / "make-zone-secrets"], capture_output=True, text=True, check=False, timeout=scaled(30)
    )
    assert called.returncode == 2
    assert "deploy/make-zone-secrets FOLDER CLUSTER..." in called.stderr
