"""The admin port: health, readiness, metrics and the admin API over HTTP (aiohttp)."""

from gateway.adapters.admin.access import Action, AdminTokens, Caller, GrantedTo, TokensFileError, built_in
from gateway.adapters.admin.api import AdminApi
from gateway.adapters.admin.console import Console, ConsoleAuthenticator
from gateway.adapters.admin.console_origins import ConsoleOrigins
from gateway.adapters.admin.guard import Guard
from gateway.adapters.admin.resources import OPERATIONS
from gateway.adapters.admin.server import AdminServer

__all__ = [
    "OPERATIONS",
    "Action",
    "AdminApi",
    "AdminServer",
    "AdminTokens",
    "Caller",
    "Console",
    "ConsoleAuthenticator",
    "ConsoleOrigins",
    "GrantedTo",
    "Guard",
    "TokensFileError",
    "built_in",
]
