"""Asking a cluster of node processes by its admin API, whichever node answers."""

from __future__ import annotations

from typing import Any

import aiohttp

from gateway.local.admin import UNREACHABLE
from gateway.local.stack import Stack
from tests.support.times import PATIENCE, scaled


async def ask(stack: Stack, method: str, path: str, **body: Any) -> Any:
    """Ask the admin API of any node that answers.

    Args:
        stack: the cluster.
        method: of HTTP.
        path: such as ``/v1/zone``.
        body: of the request.

    Raises:
        ClientError, TimeoutError, OSError: no node answers, or the answer is an error.
    """
    failure: Exception | None = None
    timeout = aiohttp.ClientTimeout(total=scaled(PATIENCE))
    headers = {"Authorization": f"Bearer {stack.admin_token_file.read_text('utf-8').strip()}"}
    for node, process in stack.nodes.items():
        if not process.running:
            continue
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as http,
                http.request(method, stack.admin_url(node, path), json=body or None) as answer,
            ):
                if not answer.ok:
                    raise aiohttp.ClientError(f"{method} {path}: {answer.status} {await answer.text()}")
                return await answer.json() if answer.content_length else None
        except UNREACHABLE as error:
            failure = error
    raise failure or ConnectionRefusedError(f"{method} {path}: no node runs")
