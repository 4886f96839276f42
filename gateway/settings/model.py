"""All settings of a node, flat, and the groups they come in.

The reference page, the flags, the environment variables and the checks come from here; ``gateway.settings.groups``
declares the settings and ``gateway.settings.declaration`` says how that is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from inspect import getdoc
from typing import Final

from gateway.settings.declaration import Setting, declared_in
from gateway.settings.groups import (
    AccessSettings,
    DrainSettings,
    GridSettings,
    JournalSettings,
    LimitSettings,
    LogSettings,
    MetricsSettings,
    NodeSettings,
    SessionSettings,
    SharedLimitSettings,
    StormSettings,
    TlsSettings,
)
from gateway.settings.values import AnonymousUsers, ways_of


@dataclass(frozen=True, kw_only=True)
class Settings(
    JournalSettings,
    MetricsSettings,
    LogSettings,
    DrainSettings,
    StormSettings,
    SharedLimitSettings,
    LimitSettings,
    SessionSettings,
    TlsSettings,
    AccessSettings,
    GridSettings,
    NodeSettings,
):  # fields come in reverse order of the bases, so in the order of GROUPS
    """All settings of a node. Made by ``gateway.settings.load``; tests may construct it and give just what matters."""

    def shortcuts(self) -> tuple[str, ...]:
        """Tell what of this configuration is not fit for production, one sentence each, to be said loudly."""
        return tuple(self._shortcuts())

    def _shortcuts(self) -> Iterator[str]:
        if self.grid is None:
            yield "the grid is in memory: sessions and values die with this process (give --grid)"
        if isinstance(self.auth, AnonymousUsers):
            yield "authentication is anonymous: anybody can be any principal (give --auth static:FILE)"
        if AnonymousUsers() in ways_of(self.auth) and self.policy is None:
            yield "there is no policy either: anybody can read and overwrite every topic (give --policy FILE)"
        if self.dev and self.token_keys_are_random:
            yield "the token key is random: a restart of this node invalidates every token (set GATEWAY_TOKEN_KEYS)"
        if "*" in self.origins:
            yield "origins is *: every page on the web may connect from a visitor's browser (name the origins)"

    token_keys_are_random: bool = False
    """True if development mode made up the token key. Set by ``load``, not by users."""


@dataclass(frozen=True, slots=True)
class Group:
    """Settings that belong together.

    Attributes:
        title: for people.
        introduction: one sentence about them.
        settings: in the order in which they are declared.
    """

    title: str
    introduction: str
    settings: tuple[Setting, ...]


def _group(declaring: type, title: str) -> Group:
    return Group(title, getdoc(declaring) or "", declared_in(declaring, title))


GROUPS: Final[tuple[Group, ...]] = (
    _group(NodeSettings, "Node"),
    _group(GridSettings, "Grid"),
    _group(AccessSettings, "Access"),
    _group(TlsSettings, "TLS"),
    _group(SessionSettings, "Sessions and connections"),
    _group(LimitSettings, "Limits"),
    _group(SharedLimitSettings, "Shared limits"),
    _group(StormSettings, "Storms"),
    _group(DrainSettings, "Drain"),
    _group(LogSettings, "Log"),
    _group(MetricsSettings, "Metrics and traces"),
    _group(JournalSettings, "Journal"),
)
"""All settings, in the order of the reference page."""

SETTINGS: Final[dict[str, Setting]] = {each.name: each for group in GROUPS for each in group.settings}
"""All settings by name."""
