"""The folder in which a stack runs: where what is, and the secrets that are made for it."""

from __future__ import annotations

import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.settings.admin_tokens import new_token, tokens_line

RUNTIME_SOCKET: Final = "haproxy.sock"
"""Relative to the run folder, where HAProxy is started: an absolute path may be too long for a socket (107 bytes)."""

_TOKEN_KEY_BYTES: Final = 32
"""Entropy of the token key made for a run folder."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder that is a stack's own.

    Attributes:
        path: absolute.
    """

    path: Path

    @property
    def redis(self) -> Path:
        """Data of the grid."""
        return self.path / "redis"

    @property
    def logs(self) -> Path:
        """Logs of all parts."""
        return self.path / "logs"

    @property
    def observatory(self) -> Path:
        """Configuration and data of Prometheus."""
        return self.path / "prometheus"

    @property
    def token_keys(self) -> Path:
        """Keys of session tokens."""
        return self.path / "token-keys"

    @property
    def admins(self) -> Path:
        """The administrators of all nodes."""
        return self.path / "admins"

    @property
    def admin_token(self) -> Path:
        """The token of the one administrator there is."""
        return self.path / "admin-token"

    @property
    def balancer_configuration(self) -> Path:
        """HAProxy's configuration."""
        return self.path / "haproxy.cfg"

    @property
    def runtime_socket(self) -> Path:
        """HAProxy's runtime socket."""
        return self.path / RUNTIME_SOCKET

    def log_of(self, name: str) -> Path:
        """The log file of ``redis``, ``haproxy`` or a node; all runs of it, one after the other."""
        return self.logs / f"{name}.log"

    def prepare(self) -> None:
        """Make what is not there: the folder, a token key, and an administrator, so that the admin API can be tried."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.token_keys.exists():
            _write_secret(self.token_keys, secrets.token_urlsafe(_TOKEN_KEY_BYTES))
        if not self.admins.exists():
            token = new_token()
            self.admin_token.unlink(missing_ok=True)
            _write_secret(self.admin_token, token)
            self.admins.write_text(f"{tokens_line('local', frozenset({'administrator'}), token)}\n")

    def clear(self) -> None:
        """Remove what earlier runs left: data, logs, keys. Nothing else that may be there."""
        for folder in (self.redis, self.logs, self.observatory):
            shutil.rmtree(folder, ignore_errors=True)
        for file in (
            *(self.token_keys, self.admins, self.admin_token),
            *(self.balancer_configuration, self.runtime_socket),
        ):
            file.unlink(missing_ok=True)


def _write_secret(file: Path, secret: str) -> None:
    file.touch(mode=0o600)
    file.write_text(f"{secret}\n")
