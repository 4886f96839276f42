"""The configuration of a node: every setting declared once, read in layers, checked as a whole.

```python
loaded = load(flags={"node": "n1", "dev": "true"})
loaded.settings.window_default  # 60.0, seconds
loaded.places["node"]           # "--node"
```
"""

from gateway.settings.authenticators import (
    AUTHENTICATOR_FILES,
    CallbackSettings,
    JwtSettings,
    read_callback_settings,
    read_jwt_settings,
)
from gateway.settings.errors import ConfigurationError, Problem
from gateway.settings.groups import (
    AccessSettings,
    DrainSettings,
    GridSettings,
    LimitSettings,
    LinkSettings,
    LogSettings,
    MetricsSettings,
    NodeSettings,
    SessionSettings,
    SharedLimitSettings,
    StormSettings,
    TlsSettings,
)
from gateway.settings.interfaces import Interface, advertised_urls, client_interfaces
from gateway.settings.loading import OTHER_VARIABLES, Loaded, load, peek, reread_keys
from gateway.settings.model import GROUPS, SETTINGS, Settings
from gateway.settings.values import (
    AnonymousUsers,
    AuthChoice,
    CallbackUsers,
    ChainedUsers,
    HostPort,
    JwtUsers,
    LogFormat,
    LogLevel,
    Secret,
    StaticUsers,
    ways_of,
)

__all__ = [
    "AUTHENTICATOR_FILES",
    "GROUPS",
    "OTHER_VARIABLES",
    "SETTINGS",
    "AccessSettings",
    "AnonymousUsers",
    "AuthChoice",
    "CallbackSettings",
    "CallbackUsers",
    "ChainedUsers",
    "ConfigurationError",
    "DrainSettings",
    "GridSettings",
    "HostPort",
    "Interface",
    "JwtSettings",
    "JwtUsers",
    "LimitSettings",
    "LinkSettings",
    "Loaded",
    "LogFormat",
    "LogLevel",
    "LogSettings",
    "MetricsSettings",
    "NodeSettings",
    "Problem",
    "Secret",
    "SessionSettings",
    "Settings",
    "SharedLimitSettings",
    "StaticUsers",
    "StormSettings",
    "TlsSettings",
    "advertised_urls",
    "client_interfaces",
    "load",
    "peek",
    "read_callback_settings",
    "read_jwt_settings",
    "reread_keys",
    "ways_of",
]
