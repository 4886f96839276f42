"""All settings of a node, flat, and the groups they come in.

The reference page, the flags, the environment variables and the checks come from here; ``gateway.settings.groups``
declares the settings and ``gateway.settings.declaration`` says how that is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gateway.settings.declaration import Group, Setting, group_of
from gateway.settings.groups import (
    AccessSettings,
    DrainSettings,
    GridSettings,
    JournalSettings,
    LimitSettings,
    LinkSettings,
    LogSettings,
    MetricsSettings,
    NodeSettings,
    SessionSettings,
    SharedLimitSettings,
    StormSettings,
    TlsSettings,
    ZoneLinkSettings,
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
    ZoneLinkSettings,
    LinkSettings,
    TlsSettings,
    AccessSettings,
    GridSettings,
    NodeSettings,
):  # fields come in reverse order of the bases, so in the order of GROUPS
    """All settings of a node. Made by ``gateway.settings.load``; tests may construct it and give just what matters."""

    def shortcuts(self) -> tuple[str, ...]:
        """List what of this configuration is not fit for production, a sentence each, for warnings."""
        return tuple(self._shortcuts())

    def _shortcuts(self) -> Iterator[str]:
        if self.grid is None:
            yield "the grid is in memory: sessions and values end with this process (give --grid)"
        if isinstance(self.auth, AnonymousUsers):
            yield "authentication is anonymous: anybody can be any principal (give --auth static:FILE)"
        if AnonymousUsers() in ways_of(self.auth) and self.policy is None:
            yield "there is no policy either: anybody can read and overwrite every topic (give --policy FILE)"
        if self.dev and self.token_keys_are_random:
            yield "the token key is random: a restart of this node invalidates every token (set GATEWAY_TOKEN_KEYS)"
        if self.link is not None and self.link_tls_certificate is None:
            yield "links have no certificates: any process of this machine can be a node (give --link-tls-certificate)"
        if "loopback" in self.origins:
            yield "origins has loopback: pages of every program on a visitor's machine may connect (name the origins)"
        if "*" in self.origins:
            yield "origins is *: every page on the web may connect from a visitor's browser (name the origins)"

    token_keys_are_random: bool = False
    """True if development mode made up the token key. Set by ``load``, not by users."""


GROUPS: Final[tuple[Group, ...]] = (
    group_of(NodeSettings, "Node"),
    group_of(GridSettings, "Grid"),
    group_of(AccessSettings, "Access"),
    group_of(TlsSettings, "TLS"),
    group_of(LinkSettings, "Links"),
    group_of(ZoneLinkSettings, "Links to other clusters"),
    group_of(SessionSettings, "Sessions and connections"),
    group_of(LimitSettings, "Limits"),
    group_of(SharedLimitSettings, "Shared limits"),
    group_of(StormSettings, "Storms"),
    group_of(DrainSettings, "Drain"),
    group_of(LogSettings, "Log"),
    group_of(MetricsSettings, "Metrics and traces"),
    group_of(JournalSettings, "Journal"),
)
"""All settings, in the order of the reference page."""

SETTINGS: Final[dict[str, Setting]] = {each.name: each for group in GROUPS for each in group.settings}
"""All settings by name."""
