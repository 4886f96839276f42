"""Who may ask: host, bearer token, roles, and how often somebody without a token may try."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Collection
from typing import Final

from aiohttp import web

from gateway.adapters.admin.access import Action, AdminTokens, Caller, GrantedTo, allows
from gateway.adapters.admin.problems import Kind, Problem
from gateway.core.pacing.failures import Failures

_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="gateway admin API"'}


class Guard:
    """Lets requests through, or raises the problem that says why not.

    Args:
        tokens: the administrators; None if administration is off.
        granted: what roles may do.
        hosts: names by which the admin port may be asked for, besides addresses and localhost; ``*`` is any.
        failures: counts those of requests without a valid token by address.
    """

    def __init__(
        self,
        tokens: AdminTokens | None,
        granted: GrantedTo,
        *,
        hosts: Collection[str],
        failures: Failures,
    ) -> None:
        self._tokens = tokens
        self._granted = granted
        self._hosts = frozenset(each.lower() for each in hosts)
        self._failures = failures

    def check_host(self, request: web.Request) -> None:
        """Refuse a request that was meant for another host: a page that had its name resolve to this node.

        Raises:
            Problem: MISDIRECTED.
        """
        host = _host_of(request.host)
        if host != "localhost" and not _is_address(host) and self._hosts.isdisjoint((host, "*")):
            raise Problem(
                Kind.MISDIRECTED,
                "the Host of the request is neither an address nor a known name of this node; the setting admin_hosts "
                "lists the names that are accepted",
            )

    def authenticate(self, request: web.Request) -> Caller:
        """Tell who asks.

        Raises:
            Problem: ADMINISTRATION_OFF, UNAUTHENTICATED or TOO_MANY_FAILURES.
        """
        if self._tokens is None:
            raise Problem(
                Kind.ADMINISTRATION_OFF,
                "no administrators are configured: make one with `gateway admin token create NAME --role ROLE`, put "
                "its line into a file, and name that by the setting admin_tokens_file",
            )
        # Looked up before failures are counted: nobody can lock an administrator out by failing from his address.
        said = request.headers.getall("Authorization", [])
        scheme, _, token = said[0].partition(" ") if len(said) == 1 else ("", "", "")
        caller = self._tokens.find(token.strip()) if scheme.lower() == "bearer" else None
        if caller is None:
            raise self._failed(request.remote or "")
        return caller

    def knows(self, authorization: str) -> bool:
        """Tell whether the value of an Authorization header is the valid token of an administrator; counts nothing."""
        if self._tokens is None:
            return False
        scheme, _, token = authorization.partition(" ")
        return scheme.lower() == "bearer" and self._tokens.find(token.strip()) is not None

    def allowed(self, caller: Caller) -> frozenset[Action]:
        """Tell what the roles of a caller allow at this moment."""
        granted = self._granted(caller.roles)
        return frozenset(action for action in Action if allows(granted, action))

    def authorise(self, caller: Caller, action: Action | None) -> None:
        """Refuse what the roles of a caller do not allow; None is what every caller may do.

        Raises:
            Problem: FORBIDDEN.
        """
        if action is not None and not allows(self._granted(caller.roles), action):
            roles = ", ".join(sorted(caller.roles))
            raise Problem(Kind.FORBIDDEN, f"{action.value} is not among what {caller.name} may do (roles: {roles})")

    def _failed(self, address: str) -> Problem:
        if wait := self._failures.failed(address, time.monotonic()):
            return Problem(
                Kind.TOO_MANY_FAILURES,
                "too many requests without a valid token came from this address; try again later",
                headers={"Retry-After": str(max(1, round(wait))), **_CHALLENGE},
            )
        return Problem(
            Kind.UNAUTHENTICATED,
            "send a token of the file of administrators, as `Authorization: Bearer …`",
            headers=_CHALLENGE,
        )


def _host_of(host: str) -> str:
    """Take the port off a Host header."""
    if host.startswith("["):
        return host[1 : host.find("]")] if "]" in host else host
    return host.rsplit(":", 1)[0].lower() if host.count(":") == 1 else host.lower()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
