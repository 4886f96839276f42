"""Every setting, declared once, in groups; a component can ask for just the settings that it needs."""

from gateway.settings.groups.access import AccessSettings
from gateway.settings.groups.grid import GridSettings
from gateway.settings.groups.limits import LimitSettings, SharedLimitSettings, StormSettings
from gateway.settings.groups.links import LinkSettings
from gateway.settings.groups.node import NodeSettings, TlsSettings
from gateway.settings.groups.sessions import DrainSettings, SessionSettings
from gateway.settings.groups.telemetry import JournalSettings, LogSettings, MetricsSettings
from gateway.settings.groups.zone_links import ZoneLinkSettings

__all__ = [
    "AccessSettings",
    "DrainSettings",
    "GridSettings",
    "JournalSettings",
    "LimitSettings",
    "LinkSettings",
    "LogSettings",
    "MetricsSettings",
    "NodeSettings",
    "SessionSettings",
    "SharedLimitSettings",
    "StormSettings",
    "TlsSettings",
    "ZoneLinkSettings",
]
