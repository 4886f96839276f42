"""Finds a Python 2.7, and gives it the test suite in a folder of its own."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

REQUIREMENTS: Final = Path(__file__).with_name("requirements.txt")

FOLDER: Final = Path(".local/autobahn")
"""Where the suite is installed, and writes its reports."""


class NoPython2(Exception):
    """There is none."""

    def __init__(self) -> None:
        super().__init__(
            "The Autobahn test suite needs Python 2.7 with pip, and none was found as $PYTHON2, as python2.7 or among\n"
            "pyenv's versions. `pyenv install 2.7.18` brings one. What the suite asks is asked by `make test` as well."
        )


def find_python2() -> str:
    """Find a Python 2.7 that starts.

    Raises:
        NoPython2: there is none.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [os.environ.get("PYTHON2"), shutil.which("python2.7"), *map(str, pyenv.glob("versions/2.7*/bin/python"))]
    for each in filter(None, found):
        # A shim of pyenv stands on the PATH also where it leads nowhere.
        if subprocess.run([each, "-c", "import pip"], check=False, capture_output=True).returncode == 0:
            return each
    raise NoPython2


def install(python: str) -> Path:
    """Install the suite, unless it is there already.

    Returns:
        The folder to import it from.

    Raises:
        subprocess.CalledProcessError: pip has failed, and said why.
    """
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    target = (FOLDER / f"suite-{wanted}").resolve()
    if not target.exists():
        unfinished = target.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        options = ["--quiet", "--no-deps", "--target", str(unfinished), "--requirement", str(REQUIREMENTS)]
        subprocess.run([python, "-m", "pip", "install", *options], check=True, env=environment())
        unfinished.rename(target)
    return target


def environment() -> dict[str, str]:
    """Return the environment for it: nothing of this Python's own may be found."""
    return {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
