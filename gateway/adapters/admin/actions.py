"""What administrators may do, by name, and which built-in roles may do it if no policy says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypeAlias


class Action(StrEnum):
    """What a request to the admin API does; a policy grants these names, or ``sessions:*``, or ``*``."""

    NODES_READ = "nodes:read"
    NODES_DRAIN = "nodes:drain"
    SESSIONS_READ = "sessions:read"
    SESSIONS_CLOSE = "sessions:close"
    SESSIONS_MOVE = "sessions:move"
    SESSIONS_NOTIFY = "sessions:notify"
    TOPICS_READ = "topics:read"
    TOPICS_WRITE = "topics:write"
    REVOCATIONS_READ = "revocations:read"
    REVOCATIONS_WRITE = "revocations:write"
    CONFIGURATION_READ = "configuration:read"


EVERYTHING: Final = "*"
"""Stands for every action; after a colon for every action on that kind of thing."""

_READ: Final = frozenset(each for each in Action if each.endswith(":read"))

ROLES: Final[dict[str, frozenset[str]]] = {
    "viewer": _READ,
    "operator": _READ
    | {
        Action.NODES_DRAIN,
        Action.SESSIONS_CLOSE,
        Action.SESSIONS_MOVE,
        Action.SESSIONS_NOTIFY,
        Action.REVOCATIONS_WRITE,
    },
    "administrator": frozenset({EVERYTHING}),
}
"""The built-in roles: who looks, who is on call, and who may also write topics."""

GrantedTo: TypeAlias = Callable[[frozenset[str]], frozenset[str]]
"""Tells which actions some roles are granted; names of actions, or patterns of them."""


def built_in(roles: frozenset[str]) -> frozenset[str]:
    """Tell what the built-in roles among *roles* may do; a ``GrantedTo``."""
    return frozenset[str]().union(*(ROLES.get(role, frozenset()) for role in roles))


def allows(granted: frozenset[str], action: Action) -> bool:
    """Tell whether what was granted includes *action*."""
    kind, _, _ = action.partition(":")
    return not granted.isdisjoint((action, f"{kind}:{EVERYTHING}", EVERYTHING))
