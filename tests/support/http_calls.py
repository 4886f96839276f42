"""Calls by HTTP to a node of a test, as back ends make them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import aiohttp

from tests.support.nodes import TestNode

ALICE = {"Authorization": "Basic " + base64.b64encode(b"alice:").decode()}
"""Credentials where authentication is anonymous: a name is enough."""

Answer = tuple[int, dict[str, Any], Mapping[str, str]]


async def call(
    node: TestNode,
    method: str = "POST",
    path: str = "/v1/publish",
    *,
    body: object = None,
    data: bytes | None = None,
    headers: Mapping[str, str] = ALICE,
    is_json: bool = True,
) -> Answer:
    """Make one call; returns status, content and headers. What is no JSON is the only member of the content."""
    url = node.url.replace("/v1/connect", path)
    if body is not None:
        data = json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **headers} if data is not None else dict(headers)
    async with aiohttp.ClientSession() as http, http.request(method, url, data=data, headers=sent) as answer:
        content = await answer.read()
        told = json.loads(content) if is_json else {"text": content.decode()}
        return answer.status, told, answer.headers
