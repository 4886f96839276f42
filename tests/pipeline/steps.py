"""A process that ends before any of its changes to the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest


class Crash(BaseException):
    """The process ends here."""


_CHANGES: Final = (
    (Path, "replace"), (Path, "rename"), (Path, "mkdir"), (Path, "rmdir"), (Path, "unlink"), (os, "fsync"),
    (shutil, "rmtree"), (pq, "write_table"),
)  # fmt: skip


@contextmanager
def crashing(step: int) -> Iterator[None]:
    """End the process before the *step*-th change of the file system that the block makes."""
    count = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            # A process that is gone does not tidy up either.
            if count >= step:
                raise Crash
            return function(*arguments, **options)

        return wrapper

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in _CHANGES:
            patch.setattr(owner, name, counted(getattr(owner, name)))
        yield


def until_killed(work: Callable[[], object], step: int) -> bool:
    """Do some work, ended before its *step*-th change; returns whether it came to that."""
    try:
        with crashing(step):
            work()
    except Crash:
        return True
    return False
