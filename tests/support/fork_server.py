"""The process that nodes of tests are forked from; see ``tests.support.forked_nodes``, which starts it.

It imports nothing of the tests, and runs no event loop: a node finds everything as if it had just imported it.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, Final, NoReturn

LONGEST: Final = 1_048_576
"""Bytes of a request."""

PR_SET_PDEATHSIG: Final = 1
"""Of prctl: the signal that the kernel sends to a process whose parent has ended."""

PID: Final = "pid"
CODE: Final = "code"
"""What is told of a node: its pid, and its exit code, or minus the number of the signal that killed it."""


def import_all() -> None:
    """Import what a node imports until it serves."""
    gc.disable()
    for name in ("uvloop", "gateway.bootstrap", "gateway.cli.program", "gateway.cli.serve"):
        importlib.import_module(name)

    # What nobody looks through stays common to all nodes.
    gc.freeze()
    gc.enable()


def serve(requests: socket.socket) -> None:
    """Fork a node for each request, and tell how each ended, until nobody can ask any more."""
    nodes: dict[int, tuple[int, socket.socket]] = {}
    """Pids, and where the end is told, by pidfd."""
    while True:
        watched: list[Any] = [requests, *nodes]
        ready, _, _ = select.select(watched, [], [])
        for each in ready:
            if each is not requests:
                pid, telling = nodes.pop(each)
                os.close(each)
                _bury(pid, telling)
                continue
            message, descriptors, _, _ = socket.recv_fds(requests, LONGEST, 2)
            if not message:
                return
            output, telling = descriptors[0], socket.socket(fileno=descriptors[1])
            pid = os.fork()
            if not pid:
                for inherited in (requests, telling, *(other for _, other in nodes.values())):
                    inherited.detach()  # closed below, with all the rest, and never again
                _close_all_but(output)
                _become(json.loads(message), output)
            os.close(output)
            with suppress(PermissionError, ProcessLookupError):  # by itself it has become one, or has ended
                os.setpgid(pid, pid)
            _tell(telling, {PID: pid})
            nodes[os.pidfd_open(pid)] = (pid, telling)


def _bury(pid: int, telling: socket.socket) -> None:
    """Take what is left of the group of a node that has ended with it, and tell how it ended."""
    # Until it is waited for, its pid, which is the id of the group, is nobody else's.
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    _tell(telling, {CODE: os.waitstatus_to_exitcode(status)})
    telling.close()


def _tell(telling: socket.socket, what: dict[str, int]) -> None:
    with suppress(OSError):  # nobody wants to know any more
        telling.sendall(json.dumps(what).encode() + b"\n")


def _close_all_but(output: int) -> None:
    os.closerange(sys.stderr.fileno() + 1, output)
    os.closerange(output + 1, os.sysconf("SC_OPEN_MAX"))


def _become(request: dict[str, Any], output: int) -> NoReturn:
    """Be the node that was asked for."""
    os.setpgid(0, 0)
    die_with(os.getppid())
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    os.close(output)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.argv = ["gateway", *request["arguments"]]
    from gateway.cli import main  # noqa: PLC0415

    sys.exit(main())


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, or do it if it has."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    die_with(int(sys.argv[2]))
    import_all()
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        serve(asked)
