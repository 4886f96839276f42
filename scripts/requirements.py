"""Pins what the image installs: ``deploy/docker/*requirements.txt``, with hashes, made by uv.

```console
$ python -m scripts.requirements
```

Versions are those of ``constraints.txt``; what is needed is what ``pyproject.toml`` says. The files name no address of
an index: pip takes the files from where it is told to, and refuses any that has another hash.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]

FOLDER: Final = Path("deploy", "docker")

RUNTIME: Final = FOLDER / "requirements.txt"
"""What runs in the image, with the extra ``otel``."""

BUILD: Final = FOLDER / "build-requirements.txt"
"""What installs that, and makes the gateway's own wheel: pip, and what ``pyproject.toml`` builds with."""

CLIENT: Final = "session-gateway-client"
"""The project's other distribution, which the server needs and the image makes for itself."""

PYTHON: Final = "3.13"
"""Of the image: what it needs is in the files, and nothing else. The hashes are those of all its platforms."""

_HEAD: Final = "# Made by `make requirements` from pyproject.toml and constraints.txt; do not edit.\n"

_OPTIONS: Final = (
    *("--constraint", "constraints.txt", "--python-platform", "linux", "--python-version", PYTHON),
    *("--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--quiet"),
    # The project's own, which is no file of an index.
    *("--no-emit-package", CLIENT),
)


def compiled(source: str, *options: str, given: str = "", root: Path = ROOT) -> str:
    """Have uv pin what a source asks for.

    Args:
        source: a file, or ``-`` for what is given.
        options: more of them.
        given: what is asked for, if it is not in a file.
        root: where the files are.

    Raises:
        subprocess.CalledProcessError: it cannot be had.
    """
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "pip", "compile", source, *options, *_OPTIONS]
    made = subprocess.run(command, cwd=root, input=given, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    return _HEAD + made.stdout


def main() -> None:
    """Make both files anew."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    build = "\n".join(["pip", *project["build-system"]["requires"]])
    (ROOT / RUNTIME).write_text(compiled("pyproject.toml", "--extra", "otel"), "utf-8")
    (ROOT / BUILD).write_text(compiled("-", given=build), "utf-8")


if __name__ == "__main__":
    main()
