"""Posts events to the receivers of hooks: implements ``gateway.ports.HookSender``."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Final

import aiohttp

from gateway.adapters.fetcher import USER_AGENT, place_of
from gateway.core.hooks.cloud_events import CONTENT_TYPE
from gateway.core.hooks.hook import Hook, HookName
from gateway.ports import NoPostAnswer, PostAnswer

CONNECTIONS: Final = 1
"""Connections to a receiver: there is one request at a time, so that events stay in order."""

MOST_OF_ANSWER: Final = 64 * 1024
"""Bytes of an answer that are read and thrown away, so that the connection can be used again; one that says more than
that is closed."""

LONGEST_HEADER: Final = 8 * 1024
"""Bytes of one header of an answer, and of its first line."""


class HttpHookSender:
    """Posts by aiohttp, with the rules of the callback of authentication.

    No redirect is followed, no proxy of the environment is used, no cookie is kept, and nothing is unpacked.
    """

    def __init__(self) -> None:
        self._sessions: dict[HookName, tuple[Hook, aiohttp.ClientSession]] = {}

    async def post(self, hook: Hook, body: bytes, headers: Mapping[str, str]) -> PostAnswer:
        """See ``HookSender.post``."""
        place = place_of(hook.url)
        result: PostAnswer | None = None
        try:
            http = await self._session(hook)
            async with (
                asyncio.timeout(hook.timeout),
                http.post(
                    hook.url, data=body, headers={**headers, "Content-Type": CONTENT_TYPE}, allow_redirects=False
                ) as answer,
            ):
                # What it answers is in its first line and headers; whatever becomes of the rest, it has the events.
                result = PostAnswer(answer.status, answer.headers.get("Retry-After"))
                await _throw_away(answer)
                return result
        except TimeoutError:
            if result is not None:
                return result
            raise NoPostAnswer(f"{place} did not answer within {hook.timeout:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if result is not None:
                return result
            # Some of them quote the URL or what was sent.
            raise NoPostAnswer(f"{place} cannot be reached ({type(error).__name__})") from None

    async def forget(self, hook: Hook) -> None:
        """See ``HookSender.forget``."""
        known = self._sessions.pop(hook.name, None)
        if known is not None:
            await known[1].close()

    async def close(self) -> None:
        """See ``HookSender.close``."""
        for hook, _ in list(self._sessions.values()):
            await self.forget(hook)

    async def _session(self, hook: Hook) -> aiohttp.ClientSession:
        known = self._sessions.get(hook.name)
        if known is not None and known[0] == hook:
            return known[1]
        await self.forget(hook)
        tls: ssl.SSLContext | bool = True
        if hook.ca_file is not None:
            tls = await asyncio.to_thread(ssl.create_default_context, cafile=hook.ca_file)
        made = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS, ssl=tls),
            headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            max_line_size=LONGEST_HEADER,
            max_field_size=LONGEST_HEADER,
        )
        self._sessions[hook.name] = hook, made
        return made


async def _throw_away(answer: aiohttp.ClientResponse) -> None:
    """Read the body of an answer up to a bound, and close the connection if there is more."""
    size = 0
    async for chunk in answer.content.iter_any():
        size += len(chunk)
        if size > MOST_OF_ANSWER:
            answer.close()
            return
