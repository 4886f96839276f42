"""Nodes of tests are forked from a process that has imported the gateway, and so are there at once (ADR 0149).

```text
process of tests ──(command, variables, where output goes)──▶ fork server ──fork──▶ node
                 ◀──(its pid, and later how it ended)────────
```

A node needs more than a second of CPU to import what it is made of, and the tests start some hundreds of them. A forked
one is a process like any other: it leads a group, is signalled, suspended and killed, and shares nothing with others
but pages of memory that nobody writes to. Whatever is more than ``gateway serve`` with settings is started anew: other
commands, other programs, and nodes for which a library replaces a call of the system.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from gateway.local.processes import Child, Program, launch
from tests.support import fork_server

SERVE: Final = (sys.executable, "-m", "gateway", "serve")
"""The beginning of commands that are forked."""

FREE: Final = ("GATEWAY_", "PYTHONPATH", "PYTEST_")
"""Beginnings of variables that a node may have otherwise than the fork server had them when it imported everything."""

ANSWER: Final = 120.0
"""Seconds for a fork. The first one waits for the imports, on a machine that may be busy."""


def can_be() -> bool:
    """Tell whether this system has what forking nodes needs."""
    return hasattr(os, "pidfd_open") and hasattr(socket, "SOCK_SEQPACKET")


class ForkedNodes:
    """Has nodes forked, by a server that begins with the first of them.

    Use it as ``ManagedProcess.launcher``, and close it.
    """

    def __init__(self) -> None:
        self._requests: socket.socket | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._variables: dict[str, str] = {}

    def __call__(self, program: Program, output: IO[bytes]) -> Child:
        """Start a program, by a fork if it is a node; see ``gateway.local.processes.Launcher``."""
        is_node = tuple(program.command[: len(SERVE)]) == SERVE
        if program.detached or not is_node or not self._is_alike(program.environment):
            return launch(program, output)
        if self._requests is None:
            self._requests = self._start()
        request = {
            "arguments": list(program.command[len(SERVE) - 1 :]),
            "environment": dict(program.environment),
            "directory": str(program.directory or Path.cwd()),
        }
        told, telling = socket.socketpair()
        with telling:
            socket.send_fds(self._requests, [json.dumps(request).encode()], [output.fileno(), telling.fileno()])
        return _ForkedNode(told)

    def close(self) -> None:
        """End the server, and with it all nodes that are left."""
        if self._requests is not None and self._server is not None:
            self._requests.close()
            self._server.wait(ANSWER)
            self._requests = self._server = None

    def _is_alike(self, environment: Mapping[str, str]) -> bool:
        """Tell whether the modules would be the same if they were imported with these variables."""
        if self._requests is None:
            self._variables = dict(os.environ)
        names = self._variables.keys() | environment.keys()
        changed = [name for name in names if self._variables.get(name) != environment.get(name)]
        return all(name.startswith(FREE) for name in changed)

    def _start(self) -> socket.socket:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._server = subprocess.Popen(
                [sys.executable, "-m", fork_server.__name__, str(its.fileno()), str(os.getpid())],
                pass_fds=[its.fileno()],
                env=self._variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # Ctrl-C is for the tests, which then end their nodes.
                start_new_session=True,
            )
        return ours


class _ForkedNode:
    """A node that is a child of the fork server."""

    def __init__(self, told: socket.socket) -> None:
        self._told = told
        self._text = b""
        self._code: int | None = None
        forked = self._next(ANSWER)
        if not forked:
            raise OSError("the process that nodes are forked from has ended; what it said is on standard error")
        self._pid = forked[fork_server.PID]

    @property
    def pid(self) -> int:
        return self._pid

    def poll(self) -> int | None:
        return self._ended_within(0)

    def wait(self, timeout: float) -> int:
        code = self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("gateway serve", timeout)
        return code

    def release(self) -> None:
        raise NotImplementedError("a node that outlives its tests is not forked")

    def _ended_within(self, timeout: float) -> int | None:
        if self._code is None and select.select([self._told], [], [], timeout)[0]:
            # Without an answer the server is gone, and then the kernel has killed its nodes.
            self._code = self._next(ANSWER).get(fork_server.CODE, -signal.SIGKILL)
            self._told.close()
        return self._code

    def _next(self, timeout: float) -> dict[str, int]:
        """Wait for what the server says next; nothing if it has ended."""
        self._told.settimeout(timeout)
        while b"\n" not in self._text:
            more = self._told.recv(fork_server.LONGEST)
            if not more:
                return {}
            self._text += more
        line, _, self._text = self._text.partition(b"\n")
        found: dict[str, int] = json.loads(line)
        return found
