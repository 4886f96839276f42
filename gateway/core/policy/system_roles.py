"""Roles that the gateway gives itself: no authenticator can give them, and no policy can name them.

A console is a session like any other, opened at the admin port by an administrator's token. What its roles permit is
fixed, because the topics are the gateway's own.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Final

from gateway.core.policy.permissions import Permissions
from gateway.core.topics.selectors import ANY, parse_selector
from gateway.core.topics.topics import SYSTEM_ROOT, SYSTEM_SIGN

CONSOLE: Final = "$console"
"""May select the system's topics."""

CONSOLE_TOPICS: Final = "$console-topics"
"""May select all other topics: of administrators who may read topics."""


def is_of_system(roles: Collection[str]) -> bool:
    """Tell whether a session with these roles is one of the gateway's own kind, which only the admin port serves."""
    return bool(roles) and any(role.startswith(SYSTEM_SIGN) for role in roles)


def without_system_roles(roles: frozenset[str]) -> frozenset[str]:
    """Take out what nobody outside can give; the very same set if there is nothing of it."""
    return frozenset(role for role in roles if not role.startswith(SYSTEM_SIGN)) if is_of_system(roles) else roles


@cache
def permissions_of_system(roles: frozenset[str]) -> Permissions:
    """Tell what a session of the gateway's own kind may do: look, as its roles say, and change nothing."""
    select = [parse_selector(f"{SYSTEM_ROOT}/{ANY}")] if CONSOLE in roles else []
    if CONSOLE_TOPICS in roles:
        select.append(parse_selector(ANY))
    return Permissions(roles, select=select)
