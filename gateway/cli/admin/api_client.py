"""A client of the admin API for commands: sends requests, and reports in words what went wrong."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

import click
import orjson

from gateway.core.loopback import is_loopback
from gateway.core.url_segments import to_segment
from gateway.core.wire.errors import GatewayError

DEFAULT_URL: Final = "http://127.0.0.1:9101"
"""Where the admin port listens if nobody says otherwise."""

DEFAULT_TIMEOUT: Final = 15.0
"""Seconds for one answer: three times what a node waits for another one."""

TOKEN_VARIABLE: Final = "GATEWAY_ADMIN_TOKEN"  # noqa: S105 - the name of a variable

LARGEST_PAGE: Final = 1000
"""Items asked for at once."""

LARGEST_TOKEN_FILE: Final = 4096
"""Characters of a file above which it holds no token, whatever it is."""

EXIT_FAILED: Final = 1
"""Exit code of a command that has failed for some of what it was given, and has told so."""

EXIT_PENDING: Final = 3
"""Exit code for what is begun and not confirmed: no failure, and nothing that a script may take for done."""

_CORRECT_FIRST: Final = {400, 401, 403, 413, 421}
"""Statuses that will be the same until something is corrected: exit code 2."""

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class AnswerProblem(GatewayError):
    """The node answered that it cannot, with problem details."""


@dataclass(frozen=True, slots=True)
class ApiClient:
    """Sends requests to one node, which answers for the whole cluster.

    Attributes:
        url: of the admin port, without a path.
        timeout: seconds for one answer.
        ca: authorities that its certificate is checked by; None for those of the system.
        certificate: file with a certificate and key to show; None for none.
        token: the secret.
    """

    url: str
    timeout: float
    ca: Path | None = None
    certificate: Path | None = None
    token: str = field(repr=False, default="")

    def ask(
        self,
        method: str,
        *path: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request and return what was answered; None if that was nothing.

        Args:
            method: of HTTP.
            path: segments below ``/v1``, not encoded yet.
            query: parameters.
            body: sent as JSON; None for none.
            headers: further ones.

        Raises:
            click.UsageError: something has to be corrected first.
            GatewayError: it failed.
        """
        return asyncio.run(self._ask(method, path, query or {}, body, headers or {}))

    def all(
        self, *path: str, query: Mapping[str, str], limit: int, page_size: int = LARGEST_PAGE
    ) -> tuple[list[Any], bool]:
        """Read pages of a list until there are *limit* items.

        Args:
            path: of the list.
            query: parameters.
            limit: most items; 0 for all of them.
            page_size: most items of a page of this list.

        Returns:
            The items, and whether there are more.
        """
        items: list[Any] = []
        cursor: str | None = None
        while True:
            # One more than wanted tells whether there are more.
            wanted = page_size if limit == 0 else min(page_size, limit + 1 - len(items))
            asked = {**query, "limit": str(wanted)} | ({} if cursor is None else {"cursor": cursor})
            page = self.ask("GET", *path, query=asked)
            items += page["items"]
            cursor = page["cursor"]
            if cursor is None or (limit and len(items) > limit):
                more = bool(limit) and len(items) > limit
                return (items[:limit] if more else items), more

    async def _ask(
        self, method: str, path: tuple[str, ...], query: Mapping[str, str], body: object, headers: Mapping[str, str]
    ) -> Any:
        # Imported here: the other commands start faster without it.
        import aiohttp  # noqa: PLC0415
        from yarl import URL  # noqa: PLC0415

        text = f"{self.url}/v1/{'/'.join(map(to_segment, path))}"
        # Encoded already, and not to be normalised: a slash inside a topic is not one between segments.
        url = URL(f"{text}?{urlencode(query)}" if query else text, encoded=True)
        said = {"Authorization": f"Bearer {self.token}", **headers}
        data = None if body is None else orjson.dumps(body)
        if data is not None:
            said["Content-Type"] = "application/json"
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self.timeout)) as http,
                http.request(
                    method, url, headers=said, data=data, allow_redirects=False, ssl=self._context()
                ) as answer,
            ):
                content = await answer.read()
                return _understood(answer.status, content)
        except TimeoutError:
            raise GatewayError(
                f"no answer from {self.url} within {self.timeout:g} s; the request may have been executed"
            ) from None
        except aiohttp.ClientConnectorCertificateError as error:
            raise click.UsageError(f"the certificate of {self.url} is not accepted ({error}); give --ca") from None
        except (aiohttp.ServerDisconnectedError, ConnectionResetError) as error:
            hint = "" if self.url.startswith("https:") else "; if it speaks TLS, its URL begins with https"
            raise GatewayError(f"{self.url} ended the connection without an answer ({error}){hint}") from None
        except aiohttp.ClientConnectorError as error:
            # Somebody accepted the connection, and did not go on as TLS does: then it is no error of the system.
            if isinstance(error, aiohttp.ClientSSLError) or not error.os_error.errno:
                raise GatewayError(
                    f"{self.url} was reached, but not in TLS; if it has none, its URL begins with http"
                ) from None
            raise GatewayError(
                f"{self.url} does not answer ({error.strerror or error}); does a node run there?"
            ) from None
        except aiohttp.ClientError as error:
            raise GatewayError(f"{self.url}: {type(error).__name__}: {error}") from None

    def _context(self) -> ssl.SSLContext | bool:
        if not self.url.startswith("https:"):
            return True
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate)
        except (OSError, ssl.SSLError) as error:
            raise click.UsageError(f"the files of --ca or --certificate cannot be used ({error})") from None
        return context


def api_client_options(function: FunctionT) -> FunctionT:
    """Give a command the options of a connection to the admin API; the command takes a ``client``."""

    def command(
        *arguments: Any,
        url: str,
        token_file: Path | None,
        timeout: float,
        ca: Path | None,
        certificate: Path | None,
        **options: Any,
    ) -> Any:
        client = ApiClient(_checked(url), timeout, ca, certificate, _token(token_file))
        return function(*arguments, client=client, **options)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__dict__.update(function.__dict__)
    described: Any = command
    for option in (
        click.option(
            "--timeout",
            type=click.FloatRange(min=0.1),
            default=DEFAULT_TIMEOUT,
            show_default=True,
            metavar="SECONDS",
            help="How long to wait for the answer.",
        ),
        click.option(
            "--certificate",
            envvar="GATEWAY_ADMIN_CERTIFICATE",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Certificate and key to show, in PEM. [env: GATEWAY_ADMIN_CERTIFICATE]",
        ),
        click.option(
            "--ca",
            envvar="GATEWAY_ADMIN_CA",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Authorities by which the node's certificate is checked. [env: GATEWAY_ADMIN_CA]",
        ),
        click.option(
            "--token-file",
            envvar="GATEWAY_ADMIN_TOKEN_FILE",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help=f"File with the token, unless {TOKEN_VARIABLE} holds it. [env: GATEWAY_ADMIN_TOKEN_FILE]",
        ),
        click.option(
            "--url",
            envvar="GATEWAY_ADMIN_URL",
            default=DEFAULT_URL,
            show_default=True,
            metavar="URL",
            help="The admin port of any node. [env: GATEWAY_ADMIN_URL]",
        ),
    ):
        described = option(described)
    return described  # type: ignore[no-any-return]  # click says nothing of what it returns


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/") or parts.query:
        raise click.UsageError("--url is the address of an admin port, such as http://127.0.0.1:9101")
    if parts.username or parts.password:
        raise click.UsageError("a secret must not be in --url, where others can see it")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        click.echo(f"gateway: warning: the token goes to {parts.hostname} unencrypted", err=True)
    return f"{parts.scheme}://{parts.netloc}"


def _token(file: Path | None) -> str:
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token and file is not None:
        try:
            with file.open(encoding="utf-8") as stream:
                token = stream.read(LARGEST_TOKEN_FILE).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise click.UsageError(f"the token cannot be read from {file} ({error})") from None
    if not token:
        raise click.UsageError(
            f"there is no token: set {TOKEN_VARIABLE}, or name a file by --token-file (`gateway admin token create` "
            "makes one)"
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        raise click.UsageError("the token holds characters that no token has")
    return token


def _understood(status: int, content: bytes) -> Any:
    try:
        body = orjson.loads(content) if content else None
    except orjson.JSONDecodeError:
        raise GatewayError(f"this is not the answer of an admin port (HTTP {status}); check --url") from None
    if status < 400:  # noqa: PLR2004 - where errors begin in HTTP
        return body
    told = body if isinstance(body, dict) else {}
    said = str(told.get("detail") or told.get("title") or f"HTTP {status}")
    if status in _CORRECT_FIRST:
        raise click.UsageError(said)
    raise AnswerProblem(said)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is done that cannot be undone.

    Raises:
        click.UsageError: nobody is there to be asked.
        click.Abort: the answer was no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("this must be confirmed, and standard input is no terminal; give --yes")
    click.confirm(question, abort=True, err=True)
