"""The folder in which a stack runs: where what is, and the secrets that are made for it.

``StackState`` is what runs in it: written by ``up``, read by ``down``, never trusted blindly. The file names
every process with its pid *and* start time, so that a file left over from a crash or an earlier boot stops nothing that
is not ours.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from gateway.local.identity import ProcessIdentity
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


_FILE: Final = "stack.json"


class StateUnreadable(Exception):
    """The state file is not what this version writes; the message says what to do."""


@dataclass(frozen=True, slots=True)
class StackState:
    """The processes of a detached stack.

    Attributes:
        base: the first port of the stack.
        processes: which process runs under which name, in the order of their start.
    """

    base: int
    processes: Mapping[str, ProcessIdentity]

    def alive(self) -> dict[str, ProcessIdentity]:
        """Return those that still run."""
        return {name: identity for name, identity in self.processes.items() if identity.alive()}

    def write(self, folder: Path) -> None:
        """Write it into the run folder, replacing what is there in one step."""
        text = json.dumps(
            {
                "base": self.base,
                "processes": {
                    name: {"pid": identity.pid, "started": identity.started}
                    for name, identity in self.processes.items()
                },
            },
            indent=2,
        )
        draft = folder / f"{_FILE}.new"
        draft.write_text(f"{text}\n")
        draft.replace(folder / _FILE)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read what the run folder says; None if it says nothing.

        Raises:
            StateUnreadable: the file is damaged.
        """
        file = folder / _FILE
        try:
            data = json.loads(file.read_text())
            return cls(
                int(data["base"]),
                {
                    str(name): ProcessIdentity(int(entry["pid"]), str(entry["started"]))
                    for name, entry in data["processes"].items()
                },
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateUnreadable(
                f"{file} can not be read ({error!r}): stop the stack's processes by hand, then delete the file"
            ) from error

    @staticmethod
    def forget(folder: Path) -> None:
        """Remove the file: nothing of ours runs here."""
        (folder / _FILE).unlink(missing_ok=True)
