"""As much of Centrifugo's protocol as it takes to have a client recover all that a channel has.

```text
back end ──(POST /api/batch)──▶ channel with history ──(a recovery from its beginning)──▶ one client
```
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import aiohttp
import orjson

from benchmarks.destinations.rates import UNDER_WAY, VALUE, Meter, Rate
from benchmarks.systems.base import Running, SystemFailed

CHANNEL: Final = "bench"

ANSWER_SECONDS: Final = 60.0
"""Within which an answer of the server has to come."""

SHOWN: Final = 200
"""Characters of a refusal."""

_CONNECT, _SUBSCRIBE = 1, 2
"""Numbers of the client's commands."""


async def measure_recovery(running: Running, *, events: int) -> Rate:
    """Publish to a channel with history, and have one client, which knows its epoch, recover all of it.

    Raises:
        SystemFailed: something was refused, or less came back.
    """
    endpoint, meter = running.endpoint, Meter(running)
    at = f"{endpoint.host}:{endpoint.port}"
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        api = f"http://{at}{endpoint.publish_target}"
        publish = {"publish": {"channel": CHANNEL, "data": VALUE}}
        for start in range(0, events, UNDER_WAY):
            await _call(http, f"{api}/batch", {"commands": [publish] * (min(events, start + UNDER_WAY) - start)})
        position = (await _call(http, f"{api}/history", {"channel": CHANNEL, "limit": 0}))["result"]
        if position["offset"] != events:
            raise SystemFailed(f"the history ends at {position['offset']:,} and not {events:,}")
        async with http.ws_connect(f"ws://{at}{endpoint.subscribe_target}", max_msg_size=0) as client:
            await _ask(client, {"id": _CONNECT, "connect": {}})
            since = meter.read()
            recover = {"channel": CHANNEL, "recover": True, "offset": 0, "epoch": position["epoch"]}
            answer = (await _ask(client, {"id": _SUBSCRIBE, "subscribe": recover}))["subscribe"]
            rate = meter.rate(events, since)
    came = [each["offset"] for each in answer.get("publications", ())]
    if not answer.get("recovered") or came != list(range(1, events + 1)):
        raise SystemFailed(f"{len(came):,} of {events:,} events were recovered")
    return rate


async def _call(http: aiohttp.ClientSession, url: str, body: dict[str, object]) -> dict[str, Any]:
    async with http.post(url, json=body) as answer:
        text = await answer.text()
    # Whatever is refused has an object "error" in place of a result, be it the whole or one command of several.
    if answer.status != HTTPStatus.OK or '"error"' in text:
        raise SystemFailed(f"{url}: {answer.status} {text[:SHOWN]}")
    found: dict[str, Any] = orjson.loads(text)
    return found


async def _ask(client: aiohttp.ClientWebSocketResponse, command: dict[str, Any]) -> dict[str, Any]:
    """Send a command and wait for its answer; what else comes meanwhile, such as a ping, is passed over."""
    await client.send_json(command)
    async for message in client:
        for line in str(message.data).splitlines():
            found: dict[str, Any] = orjson.loads(line)
            if found.get("id") == command["id"]:
                if "error" in found:
                    raise SystemFailed(f"{command}: {found['error']}")
                return found
    raise SystemFailed(f"the connection was closed with {client.close_code}, in place of an answer to {command}")
