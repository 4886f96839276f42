"""Every setting, declared once, in groups; a component can ask for just the settings that it needs."""

from gateway.settings.groups.access import AccessSettings
from gateway.settings.groups.grid import GridSettings
from gateway.settings.groups.limits import LimitSettings, SharedLimitSettings, StormSettings
from gateway.settings.groups.node import NodeSettings
from gateway.settings.groups.sessions import DrainSettings, SessionSettings
from gateway.settings.groups.telling import JournalSettings, LogSettings, MetricsSettings
from gateway.settings.groups.tls import TlsSettings

__all__ = [
    "AccessSettings",
    "DrainSettings",
    "GridSettings",
    "JournalSettings",
    "LimitSettings",
    "LogSettings",
    "MetricsSettings",
    "NodeSettings",
    "SessionSettings",
    "SharedLimitSettings",
    "StormSettings",
    "TlsSettings",
]
