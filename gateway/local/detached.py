"""``make up`` and ``make down``: a stack that is left running, and the way to stop exactly that."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

from gateway.local.run_folder import StackState
from gateway.local.stack import Stack

_GRACE_SECONDS: Final = 5.0
"""How long each part may take to stop; a drain would wait for clients that have nowhere to go."""


async def up(stack: Stack, folder: Path) -> list[str]:
    """Start a detached stack and let go of it. What runs of it already is left alone, so this also mends a stack.

    Data of Redis and token keys of an earlier run are kept: its clients can resume.

    Args:
        stack: with ``detached`` options.
        folder: its run folder.

    Returns:
        The names of the parts that were started now.

    Raises:
        ProcessFailed, PortsTaken, StateUnreadable: it could not be started; what ran before still does.
    """
    state = StackState.read(folder)
    before = {} if state is None else state.alive()
    await stack.start(adopted=before)
    stack.release()
    after = StackState.read(folder)
    return [] if after is None else [name for name in after.processes if name not in before]


def down(folder: Path) -> list[str]:
    """Stop what ``up`` started in *folder*, and nothing else. Blocks until it is gone.

    A process is stopped only if its pid *and* start time are those that were written down.

    Returns:
        The names of the processes that were stopped; empty if nothing ran.

    Raises:
        StateUnreadable: the state file is damaged.
    """
    state = StackState.read(folder)
    if state is None:
        return []
    running = state.alive()
    # Redis was started first and goes last, so that nodes can still write down who left.
    for name in reversed(running):
        if name != "redis":
            running[name].signal(signal.SIGTERM)
    for name in reversed(running):
        running[name].stop(grace=_GRACE_SECONDS)
    StackState.forget(folder)
    return list(running)
