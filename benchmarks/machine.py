"""What a result was measured on, without anything that names the machine or its folders."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[1]


def machine() -> Mapping[str, str | int]:
    """Tell processor, cores, memory, kernel and distribution."""
    return {
        "processor": _first_value(Path("/proc/cpuinfo"), "model name") or platform.machine(),
        "cores": os.cpu_count() or 0,
        "memory": _first_value(Path("/proc/meminfo"), "MemTotal") or "unknown",
        "kernel": f"{platform.system()} {platform.release()}",
        "distribution": _distribution(),
    }


def commit() -> str:
    """Tell the commit that was measured, with ``+changes`` if the working tree differs; ``unknown`` without git."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return head + ("+changes" if _git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    outcome = subprocess.run(["git", "-C", REPOSITORY, *arguments], capture_output=True, text=True, check=True)
    return outcome.stdout.strip()


def _first_value(file: Path, name: str) -> str | None:
    """Return what follows ``name :`` in a file of such lines."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    return next((each.partition(":")[2].strip() for each in lines if each.startswith(name)), None)


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "unknown")
    except OSError:
        return "unknown"
