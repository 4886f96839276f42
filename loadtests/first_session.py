"""One session before a run: a gateway that nobody can use is no objective that was missed, and is told at once.

Knows the reason, too: nobody listens, a name that does not exist, a certificate, a wrong secret, a wrong path.
"""

from __future__ import annotations

import warnings

from gateway.client import ClearTextWarning, ConnectFailed, connect
from gateway.core.client.urls import check_urls, describe_url
from loadtests.credentials import principal, secret


class GatewayUnusable(Exception):
    """No session could be opened; the message says why."""


async def must_open(url: str) -> None:
    """Open a session as the users will, and close it again.

    Args:
        url: of the gateway.

    Raises:
        GatewayUnusable: it could not be opened.
    """
    try:
        (checked,) = check_urls(url)
    except ValueError as error:
        raise GatewayUnusable(str(error)) from None
    with warnings.catch_warnings():
        # Whoever loads a gateway elsewhere knows where it is.
        warnings.simplefilter("ignore", ClearTextWarning)
        connecting = connect(checked, principal(), secret())
    try:
        session = await connecting
    except ConnectFailed as error:
        raise GatewayUnusable(
            f"no session can be opened at {describe_url(checked)}, so there is nothing to measure: {error}"
        ) from None
    await session.close()
