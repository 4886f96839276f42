"""nchan, the publish/subscribe module of nginx, as Debian packages it."""

from __future__ import annotations

import http
import http.client
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.processes import HOST
from benchmarks.systems.base import Endpoint, SystemUnavailable
from benchmarks.systems.one_program import PEERS, OneProgram, Place, configured, plain_endpoint

TEMPLATE: Final = PEERS / "nchan" / "nginx.conf.template"

MODULES: Final = (Path("/usr/lib/nginx/modules"), Path("/usr/lib64/nginx/modules"), Path("/usr/share/nginx/modules"))
"""Where distributions put nginx's dynamic modules."""

MODULE: Final = "ngx_nchan_module.so"

ADMINISTRATORS_PATH: Final = "/usr/local/sbin:/usr/sbin:/sbin"
"""Debian puts nginx where only root's PATH leads."""

SHARED_MEMORY_MEBIBYTES: Final = 256
"""Twice nchan's default: 10,000 channels and their messages fit, so that none is refused for want of memory."""

BUFFER_LENGTH: Final = 100
"""Messages kept for each channel. The default of 10 would let a subscriber whose socket was full miss some at
saturation; with 100 none was ever missed, and longer buffers cost no speed but memory."""

MESSAGE_TIMEOUT_SECONDS: Final = 600
"""Longer than any case runs; the default is an hour, which only costs memory."""

REDIS_BUFFER_LENGTH: Final = 1_000
"""With Redis, a subscriber's upgrade is answered before Redis has answered its subscription. It then starts at the
oldest message instead of the next, and so many published meanwhile are still there."""

ANSWER_SECONDS: Final = 2.0
"""For one look whether it is ready."""


def _nginx() -> Path:
    """Find nginx.

    Raises:
        SystemUnavailable: it is not installed.
    """
    found = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:{ADMINISTRATORS_PATH}")
    if found is None:
        raise SystemUnavailable("nginx with its nchan module is not installed; scripts/bench-packages does it")
    return Path(found)


def _module() -> Path:
    """Find nchan's module.

    Raises:
        SystemUnavailable: it is not installed.
    """
    for each in MODULES:
        if (each / MODULE).exists():
            return each / MODULE
    raise SystemUnavailable(f"nginx has no {MODULE}; scripts/bench-packages installs it")


class Nchan(OneProgram):
    """nginx with one worker, WebSocket subscribers, publishing by HTTP POST on kept-alive connections.

    Messages are stored in nchan's own memory, which is its fastest way: nothing of a session or a message survives the
    process. ``NchanRedis`` is the same with Redis behind it.
    """

    name: ClassVar[str] = "nchan"
    title: ClassVar[str] = "nchan (memory)"
    buffer_length: ClassVar[int] = BUFFER_LENGTH

    def prepare(self, folder: Path) -> None:  # noqa: ARG002 - nothing to keep: it is packaged by the distribution
        """See ``SystemUnderTest``; the packages themselves come by ``scripts/bench-packages``."""
        self._program = _nginx()
        _module()

    def versions(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``."""
        nginx = subprocess.run([self.program, "-v"], capture_output=True, text=True, check=True).stderr
        return {"nginx": nginx.strip().rpartition("/")[2], "nchan": _nchan_version(_module())}

    def settings(self) -> Mapping[str, str]:
        """See ``SystemUnderTest``; benchmarks/peers/README.md says more."""
        return {
            "worker_processes": "1, pinned like every server here",
            "access_log": "off",
            "nchan_message_buffer_length": f"{self.buffer_length}, so that no subscriber misses any",
            "nchan_message_timeout": f"{MESSAGE_TIMEOUT_SECONDS} s",
            "nchan_shared_memory_size": f"{SHARED_MEMORY_MEBIBYTES} MiB",
            "storage": "Redis, distributed" if self.with_redis else "memory of the process (its fastest)",
        }

    def command(self, place: Place) -> Sequence[str | Path]:
        """See ``OneProgram``."""
        configuration = configured(
            place.folder / "nginx.conf",
            TEMPLATE,
            run_as_root=os.geteuid() == 0,
            nchan_module=_module(),
            shared_memory_mebibytes=SHARED_MEMORY_MEBIBYTES,
            buffer_length=self.buffer_length,
            message_timeout_seconds=MESSAGE_TIMEOUT_SECONDS,
            redis_url=place.redis_url,
            first_message="oldest" if self.with_redis else "newest",
            port=place.port,
        )
        # -e: without it, nginx opens the log of the system's installation before it reads the configuration.
        return [self.program, "-e", "stderr", "-p", place.folder, "-c", configuration]

    def endpoint(self, port: int) -> Endpoint:
        """See ``OneProgram``."""
        return plain_endpoint(port)

    def is_ready(self, port: int) -> bool:
        """Tell whether a publish is accepted: the worker runs, and has found its Redis if there is one (else 503)."""
        connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_SECONDS)
        try:
            connection.request("POST", "/pub?id=ready", body=b"ready")
            return connection.getresponse().status in {http.HTTPStatus.CREATED, http.HTTPStatus.ACCEPTED}
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


class NchanRedis(Nchan):
    """nchan that stores its messages in Redis and spreads them over all nginx instances of a cluster through it."""

    name: ClassVar[str] = "nchan_redis"
    title: ClassVar[str] = "nchan (Redis)"
    with_redis: ClassVar[bool] = True
    buffer_length: ClassVar[int] = REDIS_BUFFER_LENGTH


def _nchan_version(module: Path) -> str:
    """Ask the packager which version *module* is; the module itself does not tell."""
    if shutil.which("dpkg-query") is None:
        return "unknown"
    outcome = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${Version}", "libnginx-mod-nchan"],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"(?:\d+:)?([\d.]+)", outcome.stdout)
    return found[1] if found else f"unknown ({module})"
