"""Asking something over HTTP whose answers may be late, huge or nonsense."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from gateway import __version__
from gateway.core.wire.errors import GatewayError

USER_AGENT: Final = f"session-gateway/{__version__}"
"""How the gateway introduces itself."""


class NoAnswer(GatewayError):
    """There was no answer that can be used; the message says why, and repeats nothing of what was sent or came."""


class Fetcher:
    """Asks one host and port; made and used within one event loop.

    Redirects are not followed: they could lead from https to http, or to where nobody wanted to send a secret. Answers
    are asked for without compression, and none is unpacked.

    Args:
        seconds: for each question, from the beginning to the last byte of the answer.
        largest: bytes of an answer.
        connections: at the same time.
        ca_file: certificates that sign those of the host; None for the system's trust store.
    """

    def __init__(self, *, seconds: float, largest: int, connections: int, ca_file: Path | None = None) -> None:
        self._seconds = seconds
        self._largest = largest
        tls: ssl.SSLContext | bool = True if ca_file is None else ssl.create_default_context(cafile=ca_file)
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, ssl=tls),
            headers={"User-Agent": USER_AGENT, "Accept": "application/json", "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def ask(
        self, method: str, url: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Ask once.

        Returns:
            The status and the body.

        Raises:
            NoAnswer: none came in time, or it is too large.
        """
        try:
            async with (
                asyncio.timeout(self._seconds),
                self._http.request(method, url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                return answer.status, await self._read(answer)
        except TimeoutError:
            raise NoAnswer(f"{place_of(url)} did not answer within {self._seconds:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Some of them quote the URL or what was sent.
            raise NoAnswer(f"{place_of(url)} cannot be asked ({type(error).__name__})") from None

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        data = bytearray()
        async for chunk in answer.content.iter_any():
            data += chunk
            if len(data) > self._largest:
                raise NoAnswer(f"{place_of(str(answer.url))} answered with more than {self._largest} bytes")
        return bytes(data)

    async def close(self) -> None:
        """Give up what is being asked."""
        await self._http.close()


async def give_up(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks that ask something, and wait for them to end; what becomes of them is of no interest any more."""
    asking = list(tasks)
    for task in asking:
        task.cancel()
    if asking:
        await asyncio.wait(asking)


def place_of(url: str) -> str:
    """Name a URL in messages: without user, password, query and fragment, which may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
