"""What the files say that ``auth`` names as ``jwt:FILE`` and ``http:FILE``: one TOML file for each authenticator.

They are files of their own because there may be several of a kind, and because who admits people is often another
team's matter than where a node listens. Keys are declared like settings, and their mistakes are told like those.
"""

from __future__ import annotations

from typing import Final

from gateway.settings.authenticators.callback import CallbackSettings, read_callback_settings
from gateway.settings.authenticators.files import TokenAlgorithm
from gateway.settings.authenticators.tokens import JwtSettings, read_jwt_settings
from gateway.settings.declaration import Setting, declared_in

__all__ = [
    "AUTHENTICATOR_FILES",
    "CallbackSettings",
    "JwtSettings",
    "TokenAlgorithm",
    "read_callback_settings",
    "read_jwt_settings",
]

AUTHENTICATOR_FILES: Final[tuple[tuple[str, type, tuple[Setting, ...]], ...]] = (
    ("jwt:FILE", JwtSettings, declared_in(JwtSettings, "jwt:FILE")),
    ("http:FILE", CallbackSettings, declared_in(CallbackSettings, "http:FILE")),
)
"""For each kind of file how ``auth`` names it, its class and its keys."""
