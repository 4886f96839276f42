"""Settings of pods on Kubernetes: a node is fit with all that the platform and each overlay put where it reads them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from gateway.settings import HostPort, Settings
from gateway.settings.loading import peek
from tests.deploy.test_packaging import DEPLOY, MANIFESTS
from tests.deploy.test_secrets import filled_in
from tests.support.times import scaled

KUBERNETES: Final = DEPLOY / "kubernetes"
OVERLAYS: Final = sorted(path.parent for path in KUBERNETES.glob("overlays/*/kustomization.yaml"))
SERVICES: Final[list[dict[str, Any]]] = [
    each
    for path in sorted(KUBERNETES.rglob("*.yaml"))
    for each in yaml.safe_load_all(path.read_text("utf-8"))
    if each["kind"] == "Service"
]
IPV4, IPV6 = "10.42.0.7", "fd00:10:244::7"


def links_of(services: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """What Kubernetes tells containers of each Service, unless their pod wants none (``enableServiceLinks``)."""
    for service in services:
        if service["spec"].get("clusterIP") == "None":
            continue
        name, address = service["metadata"]["name"].upper().replace("-", "_"), "10.96.0.9"
        first = service["spec"]["ports"][0]
        yield f"{name}_SERVICE_HOST", address
        yield f"{name}_SERVICE_PORT", str(first["port"])
        yield f"{name}_PORT", f"tcp://{address}:{first['port']}"
        for port in service["spec"]["ports"]:
            if "name" in port:
                yield f"{name}_SERVICE_PORT_{port['name'].upper().replace('-', '_')}", str(port["port"])
            prefix = f"{name}_PORT_{port['port']}_TCP"
            yield prefix, f"tcp://{address}:{port['port']}"
            yield f"{prefix}_PROTO", "tcp"
            yield f"{prefix}_PORT", str(port["port"])
            yield f"{prefix}_ADDR", address


def settings_of_pod(pod: dict[str, Any], variables: dict[str, str], address: str) -> Settings:
    """Read the settings of a node in a pod, but no file that they name."""
    known = {"GATEWAY_NODE": "gateway-0", "POD_IP": address, "GATEWAY_GRID": "redis://redis:6379/0"}
    for each in pod["containers"][0]["env"]:
        if "value" in each:
            known[each["name"]] = filled_in(each["value"], known)
    return peek(environment=variables | known).settings


def nodes_of_base() -> tuple[dict[str, Any], dict[str, str]]:
    """The pod of a node as the base has it, and the variables that its ConfigMap gives."""
    pod = yaml.safe_load((MANIFESTS / "nodes.yaml").read_text("utf-8"))["spec"]["template"]["spec"]
    generators = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text("utf-8"))["configMapGenerator"]
    (literals,) = (each["literals"] for each in generators if each["name"] == "gateway")
    return pod, dict(each.split("=", 1) for each in literals)


def test_a_node_starts_beside_every_service_even_if_its_pod_is_told_of_them() -> None:
    assert {each["metadata"]["name"] for each in SERVICES} >= {"gateway", "gateway-nodes", "gateway-zone"}
    pod, variables = nodes_of_base()

    settings_of_pod(pod, variables | dict(links_of(SERVICES)), IPV4)

    assert pod["enableServiceLinks"] is False, "and it is not told of them"


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.name)
def test_a_node_of_each_overlay_starts_beside_its_services(overlay: Any) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl here")
    made = subprocess.run(
        [kubectl, "kustomize", overlay], capture_output=True, text=True, check=False, timeout=scaled(60)
    )
    assert made.returncode == 0, made.stderr
    found = list(yaml.safe_load_all(made.stdout))
    (nodes,) = (each for each in found if each["kind"] == "StatefulSet")
    pod = nodes["spec"]["template"]["spec"]
    (name,) = (each["configMapRef"]["name"] for each in pod["containers"][0]["envFrom"])
    (variables,) = (each["data"] for each in found if each["kind"] == "ConfigMap" and each["metadata"]["name"] == name)
    services = [each for each in found if each["kind"] == "Service"]

    settings_of_pod(pod, variables | dict(links_of(services)), IPV4)

    assert pod["enableServiceLinks"] is False


@pytest.mark.parametrize("address", [IPV4, IPV6])
def test_a_pod_tells_its_address_to_the_others_whether_it_is_ipv4_or_ipv6(address: str) -> None:
    settings = settings_of_pod(*nodes_of_base(), address)

    assert settings.admin_advertise == HostPort(address, 9101)
    assert settings.link_advertise == HostPort(address, 8301)
