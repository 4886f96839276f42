"""The users of Redis that are shipped: those of the how-to; a real Redis takes them, and a real node runs on them."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, ConnectionError, NoPermissionError  # noqa: A004 - that of redis-py

from gateway.client import connect
from gateway.local.ports import free_port
from gateway.local.processes import ManagedProcess, find_program
from tests.deploy.promtool import ROOT
from tests.support.redis_user import node_rules, pipeline_rules
from tests.support.times import scaled

DEPLOY: Final = ROOT / "deploy"
USERS: Final = DEPLOY / "redis" / "users.acl"
COMPOSE: Final[dict[str, Any]] = yaml.safe_load((DEPLOY / "compose" / "compose.yml").read_text("utf-8"))


def shipped() -> dict[str, str]:
    lines = [line for line in USERS.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return {name: rules for _, name, rules in (line.split(" ", 2) for line in lines)}


def test_they_are_those_of_the_page() -> None:
    users = shipped()
    assert users.keys() == {"default", "gateway", "pipeline", "health", "operator"}
    assert users["gateway"] == node_rules().replace(">PASSWORD", "#GATEWAY")
    assert users["pipeline"] == pipeline_rules().replace(">PASSWORD", "#PIPELINE")


def test_no_password_of_redis_is_in_an_environment_or_on_a_command_line() -> None:
    for name, service in COMPOSE["services"].items():
        for text in (*map(str, service.get("command", ())), *map(str, service.get("environment", {}).values())):
            assert "redis://" not in text, name
    redis = COMPOSE["services"]["redis"]
    assert redis["command"][-2:] == ["--aclfile", "/run/secrets/redis-users"]
    assert redis["secrets"] == ["redis-users"]
    for name in ("n1", "n2", "n3"):
        assert COMPOSE["services"][name]["environment"]["GATEWAY_CONFIG"] == "/run/secrets/grid.toml"
        assert "grid.toml" in COMPOSE["services"][name]["secrets"]


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """What ``make-secrets`` makes."""
    (tmp_path / "compose").mkdir()
    (tmp_path / "redis").mkdir()
    shutil.copy(DEPLOY / "make-secrets", tmp_path)
    script = shutil.copy(DEPLOY / "compose" / "make-secrets", tmp_path / "compose")
    shutil.copy(USERS, tmp_path / "redis")
    program = {"GATEWAY": f"{sys.executable} -m gateway"}
    subprocess.run([script], env=os.environ | program, capture_output=True, check=True, timeout=scaled(60))
    return tmp_path / "compose" / "secrets"


@pytest.mark.redis
async def test_a_real_node_runs_on_them_and_nobody_without_a_name(secrets: Path, tmp_path: Path) -> None:
    port, client_port, admin_port = free_port(), free_port(), free_port()
    command = COMPOSE["services"]["redis"]["command"][2:]
    server = ManagedProcess(
        "redis",
        [
            *(find_program("redis-server"), str(DEPLOY / "redis" / "redis.conf")),
            *(part.replace("/run/secrets", str(secrets)) for part in command),
            *("--bind", "127.0.0.1", "--port", str(port)),
        ],
        log=tmp_path / "redis.log",
        directory=tmp_path,
    )
    configuration = secrets / "grid.toml"
    there = tmp_path / "grid.toml"
    there.write_text(configuration.read_text().replace("@redis:6379", f"@127.0.0.1:{port}"))
    node = ManagedProcess(
        "n1",
        [sys.executable, "-m", "gateway", "serve"],
        environment={
            **{name: None for name in os.environ if name.startswith("GATEWAY_")},
            "GATEWAY_CONFIG": str(there),
            "GATEWAY_NODE": "n1",
            "GATEWAY_AUTH": f"static:{secrets / 'users'}",
            "GATEWAY_TOKEN_KEYS_FILE": str(secrets / "token-keys"),
            "GATEWAY_JOURNAL": "true",
            "GATEWAY_LISTEN": f"127.0.0.1:{client_port}",
            "GATEWAY_ADMIN": f"127.0.0.1:{admin_port}",
        },
        log=tmp_path / "n1.log",
    )

    def user(name: str) -> Redis:
        password = (secrets / f"redis-{name}").read_text() if name != "health" else "anything"
        return Redis(host="127.0.0.1", port=port, username=name, password=password, decode_responses=True)

    async def answers() -> bool:
        try:
            return bool(await health.ping())
        except ConnectionError:
            return False

    async def ready() -> bool:
        try:
            answer = await asyncio.to_thread(urlopen, f"http://127.0.0.1:{admin_port}/readyz", timeout=scaled(5))
        except (URLError, OSError):
            return False
        return bool(answer.status == 200)

    async with user("health") as health, user("operator") as operator, user("gateway") as gateway, server:
        await server.ready(answers, timeout=scaled(20))
        async with node:
            await node.ready(ready, timeout=scaled(30))
            url = f"ws://127.0.0.1:{client_port}"
            async with connect(url, principal="demo", secret=(secrets / "demo-secret").read_text()) as session:
                await session.set_properties({"team": "fx"})
                await session.publish("prices/ACME", 1)
        # Redis of tests is older than the one that is shipped, and knows no client|setinfo.
        refused = [each["object"] for each in await operator.acl_log() if each["object"] != "client|setinfo"]
        assert refused == []
        for client, command in ((health, "DBSIZE"), (gateway, "FLUSHALL")):
            execute: Any = client.execute_command
            with pytest.raises(NoPermissionError):
                await execute(command)
        async with Redis(host="127.0.0.1", port=port) as nobody:
            with pytest.raises(AuthenticationError):
                await nobody.ping()
        for name in ("gateway", "pipeline", "operator"):
            password = (secrets / f"redis-{name}").read_text()
            written = (secrets / "redis-users", tmp_path / "n1.log", tmp_path / "redis.log")
            assert [path.name for path in written if password in path.read_text()] == []
        asked = COMPOSE["services"]["redis"]["healthcheck"]["test"][2:]
        checked = await asyncio.create_subprocess_exec(
            *(find_program("redis-cli"), "-p", str(port), *asked), stdout=asyncio.subprocess.PIPE
        )
        assert (await checked.communicate())[0].strip() == b"PONG"
        assert checked.returncode == 0
