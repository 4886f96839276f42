"""Small steps on files that are whole or have not happened, also when the power fails in between."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from pipeline.errors import NotReady, PipelineError

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
"""Of renameat2(2): swap two names in one step. Python's ``os`` does not have it."""


def sync(path: Path) -> None:
    """Have a file or folder on disk before going on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is there with all its content, or not at all."""
    waiting = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with waiting.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        waiting.replace(path)
    except BaseException:
        waiting.unlink(missing_ok=True)
        raise
    sync(path.parent)


def make_folders(folders: Iterable[Path], below: Path) -> None:
    """Make folders, so that they survive: each is on disk in its parent, up to *below*."""
    for folder in sorted({each for leaf in folders for each in (leaf, *leaf.parents) if each.is_relative_to(below)}):
        if not folder.is_dir():
            folder.mkdir(exist_ok=True)
            sync(folder.parent)


def exchange(one: Path, other: Path) -> None:
    """Swap two folders in one step: at no moment is either name missing.

    Raises:
        PipelineError: this file system cannot do it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return
    code = ctypes.get_errno()
    if code in {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}:
        raise PipelineError(
            f"the file system of {one} cannot swap two folders in one step, which compaction needs; ext4, xfs, btrfs "
            "and tmpfs can, NFS cannot"
        )
    raise OSError(code, os.strerror(code), str(one))


def empty(folder: Path) -> None:
    """Make a folder that has nothing in it."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


@contextlib.contextmanager
def only_one(file: Path, what: str) -> Iterator[None]:
    """Hold a lock while the block runs; it ends with the process, however that ends.

    Raises:
        NotReady: another process holds it.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotReady(f"another {what} works on {file.parent.parent}; wait for its end, or stop it") from None
        yield


@contextlib.contextmanager
def in_turn(file: Path) -> Iterator[None]:
    """Hold a lock while the block runs, waiting for others that hold it for a moment."""
    with file.open("ab") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
