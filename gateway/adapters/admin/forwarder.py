"""Passes a request on to the node that has to be asked, in the name of the same caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ssl import SSLContext
from typing import Final

import aiohttp
from aiohttp import web
from yarl import URL

FORWARDED_BY: Final = "Gateway-Forwarded-By"
"""Header that names the node which passed a request on: nobody passes it on again."""

PATIENCE: Final = 5.0
"""Seconds for the other node's answer: two steps of the grid at its limit, and some for the way."""

LARGEST_ANSWER: Final = 4 * 1024 * 1024
"""Bytes of an answer: a thousand selections of the longest kind fit."""

_PASSED_ON: Final = ("Authorization", "Content-Type", "Idempotency-Key")
_PASSED_BACK: Final = ("Content-Type", "Retry-After", "WWW-Authenticate", "Allow")


class NoAnswer(Exception):
    """The other node did not answer; the text says why.

    Attributes:
        may_be_done: whether it may have done what it was asked for; False if the request never reached it.
    """

    def __init__(self, why: str, *, may_be_done: bool) -> None:
        super().__init__(why)
        self.may_be_done = may_be_done


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The other node's answer.

    Attributes:
        status: of it.
        headers: those that concern the caller.
        body: as it came.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class Forwarder:
    """Asks other nodes.

    Args:
        node: the name of this node.
        tls: makes the context for a node that speaks TLS; asked each time, so that renewed certificates are used.
    """

    def __init__(self, node: str, tls: Callable[[], SSLContext]) -> None:
        self._node = node
        self._tls = tls
        self._client: aiohttp.ClientSession | None = None

    @staticmethod
    def was_forwarded(request: web.Request) -> str | None:
        """Tell which node passed a request on; None if it came from its caller."""
        return request.headers.get(FORWARDED_BY)

    async def forward(self, request: web.Request, admin: str) -> Forwarded:
        """Send a request to the admin port of another node.

        Args:
            request: with its body read.
            admin: where that port is, as a URL without a path.

        Raises:
            NoAnswer: nothing, or nothing useful, came back.
        """
        if self._client is None:
            self._client = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=PATIENCE), trust_env=False, auto_decompress=False
            )
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        headers[FORWARDED_BY] = self._node
        # Encoded already, and not to be normalised: a slash inside a topic is not one between segments.
        url = URL(f"{admin}{request.raw_path}", encoded=True)
        try:
            async with self._client.request(
                request.method,
                url,
                headers=headers,
                data=await request.read(),
                allow_redirects=False,
                ssl=self._tls() if url.scheme == "https" else True,
            ) as answer:
                body = await answer.content.read(LARGEST_ANSWER + 1)
                while chunk := await answer.content.read(LARGEST_ANSWER + 1):
                    body += chunk
                    if len(body) > LARGEST_ANSWER:
                        raise NoAnswer("it answered far too much", may_be_done=True)
                passed_back = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
                return Forwarded(answer.status, passed_back, body)
        except TimeoutError:
            raise NoAnswer(f"it did not answer within {PATIENCE:g} s", may_be_done=True) from None
        except aiohttp.ClientConnectorError as error:
            raise NoAnswer(f"it cannot be reached ({type(error).__name__})", may_be_done=False) from None
        except (aiohttp.ClientError, OSError) as error:
            raise NoAnswer(f"the connection to it broke ({type(error).__name__})", may_be_done=True) from None
        except ValueError:
            raise NoAnswer("the address that it reported is none", may_be_done=False) from None

    async def close(self) -> None:
        """Give up the connections to other nodes."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
