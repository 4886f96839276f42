"""Clusters on loopback that are linked with each other, by the admin API as administrators do it.

```text
north: n1, n2 ──▶ Redis       each cluster is a Stack of its own
south: n1, n2 ──▶ Redis       their nodes take links of other clusters on ports of their own (TLS)
```
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp

from gateway.local import admin
from gateway.local.ports import LOOPBACK, PortPlan
from gateway.local.processes import POLL_SECONDS, ProcessFailed
from gateway.local.stack import Stack

SECRET: Final = "a secret of the zone and its joins"  # noqa: S105 - of clusters on loopback that live for a minute
ANSWER_SECONDS: Final = 20.0
"""How long an answer of the admin API may take: usually some milliseconds."""
LINKED_SECONDS: Final = 60.0
"""How long all links may take until they are up: usually two seconds, the leases of carriers included."""


class LinkedCluster:
    """One of the clusters.

    Args:
        name: of the cluster.
        stack: its processes.

    Attributes:
        name: as given.
        stack: as given.
    """

    def __init__(self, name: str, stack: Stack) -> None:
        self.name = name
        self.stack = stack

    @property
    def urls(self) -> list[str]:
        """Where clients connect, without HAProxy."""
        return [self.stack.node_url(node) for node in self.stack.node_names]

    async def ask(self, method: str, path: str, *, timeout: float = ANSWER_SECONDS, **body: Any) -> Any:  # noqa: ASYNC109
        """Ask the admin API of any node that answers.

        Args:
            method: of HTTP.
            path: such as ``/v1/zone``.
            timeout: seconds for the answer of one node.
            body: of the request.

        Raises:
            ClientError, TimeoutError, OSError: no node answers, or the answer is an error.
        """
        return await ask(self.stack, method, path, timeout=timeout, **body)

    async def here(self) -> dict[str, Any]:
        """Tell what other clusters have to know of this one, once all nodes have told it.

        Raises:
            ProcessFailed: they did not in time.
        """
        found: dict[str, Any] = {}

        async def told() -> bool:
            found.update((await self.ask("GET", "/v1/zones"))["here"])
            return len(found["urls"]) == len(self.stack.node_names)

        await until(told, f"the nodes of {self.name} tell where they take links", ANSWER_SECONDS)
        return found

    async def links(self) -> list[dict[str, Any]]:
        """List the links of its nodes, as they last told."""
        members = (await self.ask("GET", "/v1/zone/members"))["items"] if await self._is_in_zone() else []
        joins = (await self.ask("GET", "/v1/joins"))["items"]
        return [link for each in (*members, *joins) for link in each["links"]]

    async def carriers(self) -> list[str]:
        """List the nodes that send to other clusters now."""
        up = [each for each in await self.links() if each["direction"] == "out" and each["state"] == "up"]
        return sorted({each["node"].partition(":")[0].partition("/")[0] for each in up})

    async def count(self, metric: str) -> int:
        """Add up a counter over the nodes that run, since each of them started.

        Args:
            metric: its name, with the labels that are wanted; with all labels if there are none.
        """
        running = [node for node, process in self.stack.nodes.items() if process.running]
        metrics = [await self.stack.metrics(node) for node in running]
        return int(
            sum(
                value
                for values in metrics
                for name, value in values.items()
                if name == metric or name.startswith(metric + "{")
            )
        )

    async def _is_in_zone(self) -> bool:
        return any(each["current"] for each in (await self.ask("GET", "/v1/zones"))["items"])


async def ask(stack: Stack, method: str, path: str, *, timeout: float = ANSWER_SECONDS, **body: Any) -> Any:  # noqa: ASYNC109
    """Ask the admin API of any node of a stack; see ``LinkedCluster.ask``."""
    failure: Exception | None = None
    headers = {"Authorization": f"Bearer {stack.admin_token_file.read_text('utf-8').strip()}"}
    for node, process in stack.nodes.items():
        if not process.running:
            continue
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout), headers=headers) as http,
                http.request(method, stack.admin_url(node, path), json=body or None) as answer,
            ):
                if not answer.ok:
                    raise aiohttp.ClientError(f"{method} {path}: {answer.status} {await answer.text()}")
                return await answer.json() if answer.content_length else None
        except admin.UNREACHABLE as error:
            failure = error
    raise failure or ConnectionRefusedError(f"{method} {path}: no node runs")


def make_certificates(folder: Path, clusters: Sequence[str]) -> None:
    """Make certificates of clusters anew, by the command that administrators use.

    Args:
        folder: where they are put; what is in it is removed.
        clusters: their names.

    Raises:
        ProcessFailed: they could not be made; the message says why.
    """
    shutil.rmtree(folder, ignore_errors=True)
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "gateway", "keys", "zone", "--folder", str(folder), *clusters],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ProcessFailed(f"no certificates for zone links: {done.stderr.strip()}")


def zone_settings(name: str, certificates: Path) -> dict[str, Any]:
    """Name the settings by which all nodes of a cluster show its certificate to other clusters.

    Args:
        name: of the cluster.
        certificates: folder that ``make_certificates`` has filled.
    """
    return {
        "cluster": name,
        "zone_tls_certificate": certificates / f"{name}.pem",
        "zone_tls_key": certificates / f"{name}.key",
        "zone_tls_ca": certificates / "zone-ca.pem",
    }


def zone_ports(ports: PortPlan) -> dict[str, dict[str, str]]:
    """Make the environment of each node by which it takes links of other clusters."""
    return {node: {"GATEWAY_ZONE_LISTEN": f"{LOOPBACK}:{each.zone}"} for node, each in ports.nodes.items()}


async def zone_of(name: str, *members: LinkedCluster) -> None:
    """Put clusters into one zone."""
    first, *others = members
    await first.ask("PUT", "/v1/zone", zone=name, secret=SECRET)
    urls = (await first.here())["urls"]
    for each in others:
        await each.ask("PUT", "/v1/zone", zone=name, urls=urls, secret=SECRET)


async def join(source: LinkedCluster, target: LinkedCluster, *selectors: str) -> None:
    """Have what matches go from one cluster to another one."""
    of_source, of_target = await source.here(), await target.here()
    both: dict[str, Any] = {"selectors": selectors, "secret": f"{SECRET} from {source.name} to {target.name}"}
    await target.ask(
        "PUT", f"/v1/joins/from-{source.name}", direction="in", fingerprints=of_source["fingerprints"], **both
    )
    await source.ask(
        "PUT",
        f"/v1/joins/to-{target.name}",
        direction="out",
        urls=of_target["urls"],
        fingerprints=of_target["fingerprints"],
        **both,
    )


async def all_linked(
    *clusters: LinkedCluster,
    out: Collection[int],
    timeout: float = LINKED_SECONDS,  # noqa: ASYNC109
) -> None:
    """Wait until each cluster sends over so many links.

    Raises:
        ProcessFailed: they did not in time.
    """

    async def linked() -> bool:
        try:
            links = [await each.links() for each in clusters]
        except admin.UNREACHABLE:
            return False
        up = [sum(each["direction"] == "out" and each["state"] == "up" for each in of) for of in links]
        return up == list(out)

    await until(linked, f"links are up: {list(out)}", timeout)


async def until(condition: Callable[[], Awaitable[bool]], what: str, seconds: float) -> float:
    """Wait until a condition is true.

    Args:
        condition: looked at again and again.
        what: it means, for people.
        seconds: the deadline.

    Returns:
        The seconds that it took.

    Raises:
        ProcessFailed: the deadline passed.
    """
    began = time.monotonic()
    while not await condition():
        if time.monotonic() - began >= seconds:
            raise ProcessFailed(f"not within {seconds:g} s: {what}")
        await asyncio.sleep(POLL_SECONDS)
    return time.monotonic() - began
