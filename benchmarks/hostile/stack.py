"""A fresh stack for one attack: Redis, two nodes and HAProxy as ``make up`` makes them, each on its core."""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

import redis.asyncio

from benchmarks.hostile import service
from benchmarks.hostile.attack import PRINCIPAL, Needs
from benchmarks.hostile.attacks.selectors import ALLOWED
from benchmarks.hostile.target import BALANCER, PATH, WITNESS_PRINCIPAL, Target
from benchmarks.hostile.tokens import issue
from benchmarks.placement import Placement
from benchmarks.processes import family
from benchmarks.systems.base import SystemUnavailable
from benchmarks.tls import certify
from gateway.adapters.authentication.secret_hashes import hash_secret
from gateway.adapters.authentication.static import users_line
from gateway.local.ports import PortPlan
from gateway.local.processes import ProgramMissing
from gateway.local.recipes import StackOptions
from gateway.local.stack import Stack
from gateway.settings import SETTINGS as BY_NAME
from gateway.settings.admin_tokens import new_token, tokens_line

ATTACKED: Final = "n1"
OTHER: Final = "n2"
"""Takes part in the cluster, and would take over if the attacked node lost its lease."""

SETTINGS: Final[Mapping[str, str]] = {"limit_exempt": f"{BALANCER}/32"}
"""The one thing that is not the default: programs on a node's own machine are exempt from the limits of an address, and
the attacker, who stands for a client elsewhere, must not be."""

PARTITION_BYTES: Final = ("stream_bytes", "limit_partition_bytes")
"""Settings that bound what a topic partition may have in Redis."""

SHIPPED_MEGABYTES: Final = 2048
"""``maxmemory`` of ``deploy/redis/redis.conf``."""

_SECRET_BYTES: Final = 16
_MEGABYTE: Final = 1024 * 1024


def _settings(needs: Needs, folder: Path, given: Mapping[str, str], viewer: str) -> dict[str, object]:
    """Write the files that an attack's stack needs, and tell the settings that name them."""
    settings: dict[str, object] = {} if needs.exempt else dict(SETTINGS)
    administrators = folder / "administrators"
    administrators.touch(mode=0o600)
    administrators.write_text(f"{tokens_line('mallory', frozenset({'viewer'}), viewer)}\n")
    settings["admin_tokens_file"] = str(administrators)
    if needs.users:
        users = folder / "users"
        users.touch(mode=0o600)
        users.write_text("".join(f"{users_line(name, hash_secret(secret))}\n" for name, secret in given.items()))
        settings["auth"] = f"static:{users}"
    if needs.policy:
        policy = folder / "policy.toml"
        allowed = ", ".join(f'"{each}"' for each in ALLOWED)
        policy.write_text(
            f'default = ["client"]\n\n[roles.client]\nselect = [{allowed}]\npublish = ["**"]\nproperties = ["*"]\n'
        )
        settings["policy"] = str(policy)
    if needs.redis_part is not None:
        for name in PARTITION_BYTES:
            settings[name] = int(int(str(BY_NAME[name].default)) * needs.redis_part)
    if needs.tls:
        certificate, key = certify(folder)
        settings |= {"tls_certificate": str(certificate), "tls_key": str(key)}
    return settings


def _program(needs: Needs) -> tuple[str, ...]:
    node = (sys.executable, "-m", "gateway", "serve")
    if needs.descriptors is None:
        return node
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    hard = needs.descriptors if needs.descriptors_hard else most
    return ("prlimit", f"--nofile={needs.descriptors}:{hard}", *node)


def pin(pid: int, core: int) -> None:
    """Bind a process, its descendants and all their threads to a core; what they start later inherits it."""
    for each in family(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for thread in Path(f"/proc/{each}/task").iterdir():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread.name), {core})


@contextlib.asynccontextmanager
async def running(
    needs: Needs, folder: Path, placement: Placement, *, scale: float = 1.0
) -> AsyncIterator[tuple[Stack, Target]]:
    """Run a stack for the length of the block: the attacked node on one core, everything else on the other.

    Args:
        needs: of the attack.
        folder: for its files.
        placement: cores.
        scale: see ``Target.scale``.

    Raises:
        SystemUnavailable: redis-server, haproxy, or openssl where TLS is needed, is not installed.
        ProcessFailed: a part did not come up.
    """
    given: dict[str, str] = {}
    if needs.users or needs.service is not None:
        given = {name: secrets.token_hex(_SECRET_BYTES) for name in (PRINCIPAL, WITNESS_PRINCIPAL)}
    viewer = new_token()
    issued: dict[str, object] = {}
    if needs.tokens:
        issued["auth"], given = issue(folder, (PRINCIPAL, WITNESS_PRINCIPAL))
    ports = PortPlan.free(2)
    async with contextlib.AsyncExitStack() as parts:
        if needs.service is not None:
            asked, issued["auth"] = await parts.enter_async_context(service.running(folder, given, needs.service))
            pin(asked.pid, placement.others)
        try:
            stack = Stack(
                StackOptions(
                    ports=ports,
                    folder=folder / "stack",
                    node_settings=_settings(needs, folder, given, viewer) | issued,
                    node_program=_program(needs),
                )
            )
        except ProgramMissing as missing:
            raise SystemUnavailable(str(missing)) from missing
        await parts.enter_async_context(stack)
        pin(stack.nodes[ATTACKED].pid, placement.server)
        for process in (stack.grid.process, stack.nodes[OTHER], stack.balancer):
            if process is not None:
                pin(process.pid, placement.others)
        megabytes = needs.redis_megabytes
        if needs.redis_part is not None:
            megabytes = int(SHIPPED_MEGABYTES * needs.redis_part)
        if megabytes is not None:
            async with redis.asyncio.from_url(stack.grid_url) as grid:
                await grid.config_set("maxmemory", megabytes * _MEGABYTE)
        attacked = ports.nodes[ATTACKED]
        yield (
            stack,
            Target(
                port=attacked.listen,
                admin=attacked.admin,
                agent=attacked.agent,
                balancer=ports.entry,
                path=f"{PATH}?node={ATTACKED}",
                viewer=viewer,
                tls=needs.tls,
                secrets=given,
                scale=scale,
            ),
        )
