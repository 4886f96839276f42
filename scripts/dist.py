"""Make what others install: wheels of the server and of the Python client, and the tarball of the JavaScript client.

```console
$ python -m scripts.dist dist
```

The same source makes the same bytes, wherever and whenever: whoever has a file can make it again and compare.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from gateway import __version__

ROOT: Final = Path(__file__).parents[1]

PYTHON_CLIENT: Final = ROOT / "clients" / "python"
JAVASCRIPT_CLIENT: Final = ROOT / "clients" / "javascript"

NOT_PACKED: Final = ("node_modules", "types", "*.tgz")
"""What earlier work may have left in the folder of the JavaScript client."""

TIME: Final = "1767225600"
"""Of all files in wheels, in seconds since 1970: the first of January 2026. Any will do that is always the same."""


class DistributionError(Exception):
    """A file was not made; the message is for people."""


def build_wheels(folder: Path) -> list[Path]:
    """Build the wheels of the client and of the server, with what is installed here; nothing is fetched.

    Args:
        folder: where to put them; made if it is not there.

    Raises:
        DistributionError: one cannot be built.
    """
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder.absolute())]
    for project in (PYTHON_CLIENT, ROOT):
        built = subprocess.run(  # noqa: S603
            command,
            cwd=project,
            env=os.environ | {"SOURCE_DATE_EPOCH": TIME},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if built.returncode:
            raise DistributionError(f"{project} was not built: {built.stderr.strip()}")
    return [folder / f"{name}-{__version__}-py3-none-any.whl" for name in ("session_gateway_client", "session_gateway")]


def pack_javascript(folder: Path) -> Path:
    """Pack the JavaScript client with types that are made of its comments; npm fetches the compiler of TypeScript.

    Args:
        folder: where to put it; made if it is not there.

    Raises:
        DistributionError: it cannot be packed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="packing-") as name:
        copy = Path(name, "javascript")
        shutil.copytree(JAVASCRIPT_CLIENT, copy, ignore=shutil.ignore_patterns(*NOT_PACKED))
        printed = ""
        for command in (
            ("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"),
            ("npm", "pack", "--loglevel=error", "--pack-destination", str(folder.absolute())),
        ):
            done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)  # noqa: S603
            if done.returncode:
                raise DistributionError(f"{JAVASCRIPT_CLIENT} was not packed: {done.stderr.strip()}")
            printed = done.stdout
    return folder / printed.split()[-1]


def main() -> None:
    """Make all of them in the folder that is named, and tell where they are."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "dist")
    try:
        for path in (*build_wheels(folder), pack_javascript(folder)):
            print(path)  # noqa: T201 - that is what was asked for
    except DistributionError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
