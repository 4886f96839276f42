"""A service that a node asks who clients are, and that is slow to say no: a search of a database, a lockout, a fault.

``python -m benchmarks.hostile.service FILE`` runs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiohttp import web

from benchmarks.hostile.target import HOST
from gateway.local.ports import free_port
from gateway.local.processes import ManagedProcess

PATH: Final = "/who"

START_SECONDS: Final = 30.0
"""How long it may take to come up on a busy machine."""


@contextlib.asynccontextmanager
async def running(
    folder: Path, secrets: Mapping[str, str], refusal_seconds: float
) -> AsyncIterator[tuple[ManagedProcess, str]]:
    """Run a service for the length of the block.

    Args:
        folder: for its files.
        secrets: by principal.
        refusal_seconds: how long it takes to refuse a secret.

    Yields:
        Its process, and the setting ``auth`` of a node that asks it.

    Raises:
        ProcessFailed: it did not come up.
    """
    port = free_port()
    file, callback = folder / "service.json", folder / "callback.toml"
    file.touch(mode=0o600)
    file.write_text(json.dumps({"port": port, "secrets": dict(secrets), "refusal_seconds": refusal_seconds}), "utf-8")
    callback.write_text(f'url = "http://{HOST}:{port}{PATH}"\n', "utf-8")
    process = ManagedProcess(
        "service", [sys.executable, "-m", "benchmarks.hostile.service", str(file)], log=folder / "service.log"
    )
    async with process, aiohttp.ClientSession() as http:

        async def answers() -> bool:
            try:
                async with http.get(f"http://{HOST}:{port}/"):
                    return True
            except aiohttp.ClientError:
                return False

        await process.ready(answers, timeout=START_SECONDS)
        yield process, f"http:{callback}"


def application(given: Mapping[str, Any]) -> web.Application:
    """Make the service: whoever shows a principal's secret is that principal, and is asked about every time."""
    principals = {secret: principal for principal, secret in given["secrets"].items()}

    async def who(request: web.Request) -> web.Response:
        asked = await request.json()
        principal = principals.get(asked["secret"])
        if principal is None:
            await asyncio.sleep(given["refusal_seconds"])
            return web.Response(status=401)
        return web.json_response({"principal": principal, "remember": 0})

    made = web.Application()
    made.router.add_post(PATH, who)
    return made


def main(arguments: list[str]) -> None:
    """Serve until a signal."""
    [file] = arguments
    given = json.loads(Path(file).read_text("utf-8"))
    web.run_app(application(given), host=HOST, port=given["port"], print=None)


if __name__ == "__main__":
    main(sys.argv[1:])
