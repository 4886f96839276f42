"""The secrets of every way to run the gateway: made by the command that its page gives, and a node is fit with them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.deploy.test_packaging import COMPOSE, DEPLOY, MANIFESTS, NODES, UNIT, literals, of_kind
from tests.support.times import scaled

FOR_PEOPLE: Final = ("demo-secret", "admin-token", "redis-gateway", "redis-pipeline", "redis-operator")
"""Secrets that no container is given: those of clients, administrators, and of Redis's users."""
HOOKS: Final = DEPLOY / "kubernetes" / "components" / "hooks"
"""What an overlay takes that wants event hooks."""
PROGRAM: Final = f"{sys.executable} -m gateway"
"""What the scripts run in place of the image."""


def run(command: Sequence[str | Path], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script of ``deploy``; it must succeed."""
    made = subprocess.run(
        command,
        env={**{name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(60),
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return made


def must_be_fit(environment: Mapping[str, str], places: Mapping[str, Path], node: str, *options: str | Path) -> str:
    """Check the configuration of a node with the secrets that were made.

    Args:
        environment: of its process.
        places: where the files are that it names, by how it names them.
        node: its name.
        options: flags of its command.

    Returns:
        What the check said.
    """

    def found(value: str) -> str:
        for named, path in places.items():
            value = re.sub(rf"{re.escape(named)}(?![\w.-])", str(path), value)
        return value

    given = {name: found(value) for name, value in environment.items() if name.startswith("GATEWAY_")}
    said = run([sys.executable, "-m", "gateway", "check-config", *options], **given).stdout
    assert re.search(r"^links: .*, with a certificate until ", said, re.MULTILINE), said
    assert "administrators: 1\n" in said
    assert "policy: 2 roles, 1 principals\n" in said
    assert re.search(rf"^node +{node} ", said, re.MULTILINE), said
    # Nobody in the list of processes, and no file for everybody, has the password of the grid.
    assert re.search(r"^grid +rediss?://gateway:…@", said, re.MULTILINE), said
    return said


def keys_of(said: str) -> str:
    """What a check said of token keys."""
    (line,) = re.findall(r"^token keys: (.*) \(all nodes", said, re.MULTILINE)
    return str(line)


def must_rotate(folder: Path, bring: Callable[[], object], check: Callable[[], str]) -> None:
    """Change the key of session tokens by the steps of the page for a key that has leaked; the node must have it.

    Args:
        folder: of the secrets.
        bring: brings them to the node.
        check: checks the node's configuration, and returns what it said.
    """

    def change(*command: str) -> str:
        return run([DEPLOY / "token-keys", folder, *command], GATEWAY=PROGRAM).stdout

    (leaked,) = re.fullmatch(r"(\S+) signs and verifies", keys_of(check())).groups()  # type: ignore[union-attr]
    following = change("create").strip()
    bring()
    assert keys_of(check()) == f"{following} verifies, {leaked} signs and verifies"
    change("promote", following)
    bring()
    assert keys_of(check()) == f"{leaked} verifies, {following} signs and verifies"
    change("retire", leaked, "--force")
    bring()
    assert keys_of(check()) == f"{following} signs and verifies"
    assert leaked not in change("list")


def make_hooks(folder: Path) -> None:
    """Make a folder of event hooks by the commands that the page gives."""
    page = (DEPLOY / "README.md").read_text("utf-8").partition("## Event hooks")[2]
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", page.partition("\n## ")[0], re.MULTILINE | re.DOTALL)
    with contextlib.chdir(DEPLOY.parent):
        run(["bash", "-ec", commands.replace("gateway-secrets/hooks", str(folder))])
    assert {path.name: path.stat().st_mode & 0o077 for path in folder.iterdir()}["crm.secret"] == 0
    assert folder.stat().st_mode & 0o077 == 0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Secrets of the nodes n1 and n2."""
    folder = tmp_path_factory.mktemp("secrets") / "gateway"
    run([DEPLOY / "make-secrets", folder, "n1", "n2"], GATEWAY=PROGRAM, GRID="rediss://redis.example:6380/0")
    return folder


def test_secrets_are_readable_by_who_made_them_alone_and_stay(made: Path) -> None:
    assert made.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in made.iterdir() if path.stat().st_mode & 0o077 and path.suffix != ".pem"] == []
    before = {path.name: path.read_text() for path in made.iterdir()}

    run([DEPLOY / "make-secrets", made, "n1", "n2", "n3"], GATEWAY=PROGRAM)

    after = {path.name: path.read_text() for path in made.iterdir()}
    assert after.keys() - before.keys() == {"n3.pem", "n3.key"}, "a node more"
    assert before.items() <= after.items()
    (password, url) = (before["redis-gateway"], before["grid-url"])
    assert url == f"rediss://gateway:{password}@redis.example:6380/0"
    assert before["grid.env"] == f"GATEWAY_GRID={url}\n"
    assert before["admin-token"].startswith("gwadm_")
    assert before["admin-token"].strip() not in before["admins"]
    assert before["demo-secret"] not in before["users"]


def test_make_secrets_says_how_it_is_called() -> None:
    called = subprocess.run([DEPLOY / "make-secrets"], capture_output=True, text=True, check=False, timeout=scaled(20))
    assert (called.returncode, "deploy/make-secrets FOLDER NODE..." in called.stderr) == (2, True)


def test_a_failure_to_make_certificates_is_told(tmp_path: Path) -> None:
    called = subprocess.run(
        [DEPLOY / "make-secrets", tmp_path / "made", "no node"],
        env=os.environ | {"GATEWAY": PROGRAM},
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(60),
    )
    assert called.returncode != 0
    assert "gateway: error: " in called.stderr


# --- Compose ----------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_secrets_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "compose").mkdir()
    (tmp_path / "redis").mkdir()
    shutil.copy(DEPLOY / "redis" / "users.acl", tmp_path / "redis")
    shutil.copy(DEPLOY / "make-secrets", tmp_path)
    script = shutil.copy(DEPLOY / "compose" / "make-secrets", tmp_path / "compose")
    secrets = tmp_path / "compose" / "secrets"
    before: dict[str, str] = {}
    for _ in range(2):
        made = run([script], GATEWAY=PROGRAM)
        keys = {"keys", "token-keys", "token-verify-keys"}
        assert set(made.stdout.split()) == {
            *COMPOSE["secrets"],
            *FOR_PEOPLE,
            *keys,
            "grid.env",
            "grid-url",
            "link-ca.key",
        }
        now = {str(path): path.read_text() for path in secrets.rglob("*") if path.is_file()}
        assert before in ({}, now), "what is there stays"
        before = now
    for name, secret in COMPOSE["secrets"].items():
        assert secret["file"] == f"./secrets/{name}"
        assert (secrets / name).stat().st_mode & 0o777 == 0o444, "the user of a container can read it"
    assert secrets.stat().st_mode & 0o777 == 0o700
    for name in ("token-keys", "token-verify-keys"):
        assert (secrets / "keys" / name).stat().st_mode & 0o777 == 0o444
    for name in (*FOR_PEOPLE, "link-ca.key", "token-keys", "token-verify-keys"):
        assert (secrets / name).stat().st_mode & 0o077 == 0, name
    assert len((secrets / "token-keys").read_text().strip()) >= 43
    make_hooks(tmp_path / "hooks")
    more = yaml.safe_load((DEPLOY / "compose" / "hooks.yml").read_text("utf-8"))["services"]
    assert more.keys() == NODES.keys()
    for name, node in NODES.items():
        files = {(each if isinstance(each, str) else each["target"]): each for each in node["secrets"]}
        places = {
            f"/run/secrets/{target}": secrets / (each if isinstance(each, str) else each["source"])
            for target, each in files.items()
        }
        policy, keys_folder = node["volumes"]
        assert policy == "../policy.toml:/etc/gateway/policy.toml:ro"
        assert (keys_folder["source"], keys_folder["read_only"]) == ("./secrets/keys", True)
        places["/etc/gateway/policy.toml"] = DEPLOY / "policy.toml"
        places[keys_folder["target"]] = secrets / "keys"
        assert "hooks: " not in must_be_fit(node["environment"], places, name)
        (volume,) = more[name]["volumes"]
        assert volume["source"] == "./secrets/hooks", "which is in no repository"
        assert volume["read_only"] is True
        places[volume["target"]] = tmp_path / "hooks"
        assert "\nhooks: crm\n" in must_be_fit(node["environment"] | more[name]["environment"], places, name)

    def bring() -> None:
        run([script], GATEWAY=PROGRAM)
        for path in (secrets / "keys").iterdir():
            assert path.stat().st_mode & 0o777 == 0o444

    must_rotate(secrets, bring, lambda: must_be_fit(node["environment"], places, name))


# --- systemd ----------------------------------------------------------------------------------------------------------


def test_a_node_of_systemd_is_fit_to_run_with_what_the_page_installs(made: Path, tmp_path: Path) -> None:
    etc = tmp_path / "etc" / "gateway"
    script = DEPLOY / "systemd" / "install-secrets"
    for _ in range(2):
        run([script, made, "n1"], DESTDIR=str(tmp_path), NODE_GROUP=str(os.getgid()))
    modes = {path.name: path.stat().st_mode & 0o777 for path in (etc / "secrets").iterdir()}
    assert modes.pop("grid.env") == 0o600, "for systemd alone"
    assert set(modes.values()) == {0o640}
    keys = {"token-keys", "token-verify-keys"}
    assert modes.keys() == {*keys, "users", "admins", "link-ca.pem", "link.pem", "link.key"}
    toml = (DEPLOY / "systemd" / "gateway.toml.example").read_text("utf-8").replace("/etc/gateway", str(etc))
    (etc / "gateway.toml").write_text(toml)
    shutil.copy(DEPLOY / "policy.toml", etc)
    unit = UNIT.read_text("utf-8")
    assert "EnvironmentFile=-/etc/gateway/secrets/grid.env\n" in unit
    lines = [
        *re.findall(r"^Environment=(\S+)$", unit, re.MULTILINE),
        *(DEPLOY / "systemd" / "gateway.env.example").read_text("utf-8").splitlines(),
        *(etc / "secrets" / "grid.env").read_text().splitlines(),
    ]
    environment = dict(line.split("=", 1) for line in lines if not line.startswith("#"))

    options = ("--config", etc / "gateway.toml", "--node", "n1")
    assert "hooks: " not in must_be_fit(environment, {"/etc/gateway": etc}, "n1", *options)
    make_hooks(etc / "hooks")
    (etc / "gateway.toml").write_text(re.sub(r"^# (journal|hooks)(?= =)", r"\1", toml, flags=re.MULTILINE))
    assert "\nhooks: crm\n" in must_be_fit(environment, {"/etc/gateway": etc}, "n1", *options)
    assert not any(name.startswith("GATEWAY_TOKEN_") for name in environment), "it would win over the file"
    secrets = shutil.copytree(made, tmp_path / "secrets")
    must_rotate(
        secrets,
        lambda: run([script, secrets, "n1"], DESTDIR=str(tmp_path), NODE_GROUP=str(os.getgid())),
        lambda: must_be_fit(environment, {"/etc/gateway": etc}, "n1", *options),
    )
    # The commands find the files of the node by the node's own file of settings, and so does whoever looks at a token.
    listed = run([sys.executable, "-m", "gateway", "keys", "list", *options[:2]]).stdout
    assert len(re.findall(" signs and verifies ", listed)) == 1


def test_a_node_of_systemd_is_checked_as_the_unit_runs_it(tmp_path: Path) -> None:
    called = tmp_path / "systemd-run"
    called.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    called.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"

    given = run([DEPLOY / "systemd" / "check-config", "n1", "--log-level", "debug"], PATH=path).stdout.splitlines()

    unit = UNIT.read_text("utf-8").replace("%i", "n1")
    assert {"--pipe", "--wait"} < set(given), "what it says is seen, and its exit code is that of the command"
    for name in ("User", "Group", "EnvironmentFile"):
        wanted = re.findall(rf"^{name}=(.*)$", unit, re.MULTILINE)
        assert [each.partition(f"--property={name}=")[2] for each in given if f"={name}=" in each] == wanted
    assert re.findall(r"^Environment=", unit, re.MULTILINE) == [], "the check would have to have it, too"
    (start,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    command = start.replace(" serve ", " check-config ").split()
    assert given[-len(command) - 2 :] == [*command, "--log-level", "debug"]


def test_keys_are_changed_only_where_secrets_were_made(tmp_path: Path) -> None:
    for arguments, said in (((), "token-keys FOLDER list"), ((tmp_path, "create"), "deploy/make-secrets makes it")):
        called = subprocess.run(
            [DEPLOY / "token-keys", *arguments], capture_output=True, text=True, check=False, timeout=scaled(20)
        )
        assert (called.returncode, said in called.stderr) == (2, True)


# --- Kubernetes -------------------------------------------------------------------------------------------------------


def filled_in(value: str, known: Mapping[str, str]) -> str:
    """Fill in variables as Kubernetes does: those that stand before."""
    return re.sub(r"\$\((\w+)\)", lambda name: known[name[1]], value)


@pytest.mark.thorough
def test_a_pod_is_fit_to_run_with_the_secrets_that_the_page_makes(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    for _ in range(2):
        run([DEPLOY / "kubernetes" / "make-secrets", folder], GATEWAY=PROGRAM)
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))
    assert (
        kustomization["namespace"] == yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text("utf-8"))["namespace"]
    )
    secrets = {
        each["name"]: {key: folder / (file or key) for key, _, file in (one.partition("=") for one in each["files"])}
        for each in kustomization["secretGenerator"]
    }
    (nodes,) = of_kind("StatefulSet")
    pod = nodes["spec"]["template"]["spec"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    policy = {"policy.toml": DEPLOY / "policy.toml"}
    places: dict[str, Path] = {}
    for mount in pod["containers"][0]["volumeMounts"]:
        volume = volumes[mount["name"]]
        held = secrets[volume["secret"]["secretName"]] if "secret" in volume else policy
        places |= {f"{mount['mountPath']}/{key}": path for key, path in held.items()}
    make_hooks(tmp_path / "hooks")
    component = yaml.safe_load((HOOKS / "kustomization.yaml").read_text("utf-8"))
    (generator,) = component["configMapGenerator"]
    more = dict(each.split("=", 1) for each in generator["literals"])
    hooks = {"/etc/gateway/hooks": tmp_path / "hooks"}
    for number in range(nodes["spec"]["replicas"]):
        known = {"GATEWAY_NODE": f"{nodes['metadata']['name']}-{number}", "POD_IP": "10.42.0.7"}
        for each in pod["containers"][0]["env"]:
            if "value" in each:
                known[each["name"]] = filled_in(each["value"], known)
            elif "secretKeyRef" in each["valueFrom"]:
                secret = each["valueFrom"]["secretKeyRef"]
                known[each["name"]] = secrets[secret["name"]][secret["key"]].read_text()
        assert "hooks: " not in must_be_fit(literals() | known, places, known["GATEWAY_NODE"])
        assert "\nhooks: crm\n" in must_be_fit(literals() | known | more, places | hooks, known["GATEWAY_NODE"])
    # What is in the folder is what `kubectl apply` brings.
    must_rotate(folder, lambda: None, lambda: must_be_fit(literals() | known, places, known["GATEWAY_NODE"]))


def test_kustomize_adds_event_hooks_where_an_overlay_asks_for_them(tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl here")
    base, component = (Path(os.path.relpath(each, tmp_path)) for each in (MANIFESTS, HOOKS))
    (tmp_path / "kustomization.yaml").write_text(
        f"namespace: session-gateway\nresources: [{base}]\ncomponents: [{component}]\n"
    )
    made = list(yaml.safe_load_all(run([kubectl, "kustomize", tmp_path]).stdout))
    (nodes,) = (each for each in made if each["kind"] == "StatefulSet")
    pod = nodes["spec"]["template"]["spec"]
    (volume,) = (each for each in pod["volumes"] if each["name"] == "hooks")
    assert volume["secret"] == {"secretName": "gateway-hooks", "defaultMode": 0o440}
    (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "hooks")
    (settings,) = (
        each["data"]
        for each in made
        if each["kind"] == "ConfigMap"
        and each["metadata"]["name"].startswith("gateway-")
        and "GATEWAY_AUTH" in each["data"]
    )
    assert settings["GATEWAY_HOOKS"] == f"{mount['mountPath']}/hooks.toml"
    assert settings["GATEWAY_JOURNAL"] == "true"
    assert mount["readOnly"] is True
    assert literals().items() <= settings.items(), "what the base says stays"


def test_kubernetes_has_the_same_policy_as_the_others() -> None:
    assert (MANIFESTS / "policy.toml").read_text("utf-8") == (DEPLOY / "policy.toml").read_text("utf-8")


def test_secrets_are_accepted_by_kustomize(tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl here")
    run([DEPLOY / "kubernetes" / "make-secrets", tmp_path / "secrets", "gateway-0"], GATEWAY=PROGRAM)
    made = list(yaml.safe_load_all(run([kubectl, "kustomize", tmp_path / "secrets"]).stdout))
    (nodes,) = of_kind("StatefulSet")
    pod = nodes["spec"]["template"]["spec"]
    wanted = {each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    wanted |= {
        each["valueFrom"]["secretKeyRef"]["name"]
        for each in pod["containers"][0]["env"]
        if "secretKeyRef" in each.get("valueFrom", {})
    }
    assert {each["metadata"]["name"] for each in made} == wanted
