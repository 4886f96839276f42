"""Empty virtual environments that our wheels are installed into, beside what they say they need; nothing is fetched."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import HeaderParser
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.times import scaled

OURS: Final = {"session-gateway", "session-gateway-client"}


def required(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        told = HeaderParser().parsestr(archive.read(metadata).decode("utf-8"))
    return [Requirement(each) for each in told.get_all("Requires-Dist", ())]


def link(name: str, extra: str, folder: Path, done: set[tuple[str, str]]) -> None:
    """Put an installed distribution into another environment as links, with what it says it needs."""
    if (canonicalize_name(name), extra) in done or canonicalize_name(name) in OURS:
        return
    done.add((canonicalize_name(name), extra))
    installed = distribution(name)
    for top in {path.parts[0] for path in installed.files or ()} - {"..", "__pycache__"}:
        if not (folder / top).exists():
            (folder / top).symlink_to(Path(sysconfig.get_path("purelib"), top))
    for text in installed.requires or ():
        link_needed(Requirement(text), extra, folder, done)


def link_needed(needed: Requirement, extra: str, folder: Path, done: set[tuple[str, str]]) -> None:
    if needed.marker is None or needed.marker.evaluate({"extra": extra}):
        for each in ("", *needed.extras):
            link(needed.name, each, folder, done)


class Environment:
    """An empty virtual environment that wheels are installed into, with what they say they need and nothing else."""

    def __init__(self, folder: Path, *wheels: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=scaled(60))
        (self.packages,) = folder.glob("lib/python*/site-packages")
        done: set[tuple[str, str]] = set()
        for wheel in wheels:
            for each in required(wheel):
                link_needed(each, "", self.packages, done)
        self.pip("install", "--no-index", "--no-deps", *map(str, wheels))

    def pip(self, *arguments: str) -> str:
        python = str(self.folder / "bin" / "python")
        return self._run([sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, *arguments])

    def run(self, program: str, *arguments: str) -> str:
        return self._run([str(self.folder / "bin" / program), *arguments])

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
            timeout=scaled(60),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
