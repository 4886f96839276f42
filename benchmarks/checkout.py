"""Which version of the gateway nodes are started from: this one, or another that it is compared with."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.systems.base import SystemUnavailable

SOURCE: Final = Path(__file__).resolve().parents[1]

NO_LIMIT: Final = "0"
"""What limits are set to that a measurement must not meet. A version that has no such limit need not be told."""

_FLAG: Final = re.compile(r"--([a-z][a-z-]*)")


@dataclass(frozen=True)
class Checkout:
    """A version of the gateway in a folder.

    Attributes:
        title: for tables.
        folder: where its package is.
        python: the interpreter, with what that version needs.
        flags: settings of ``gateway serve`` that it knows; any if None.
    """

    title: str
    folder: Path
    python: Path
    flags: frozenset[str] | None = None

    def command(self, settings: Mapping[str, str]) -> Sequence[str]:
        """Return the command that runs a node; it needs ``environment``.

        Args:
            settings: by flag without the dashes; nothing for a switch.

        Raises:
            SystemUnavailable: the version does not know one of the settings, and it is more than a limit that is off.
        """
        if self.flags is not None:
            strange = {name for name, value in settings.items() if name not in self.flags and value != NO_LIMIT}
            if strange:
                raise SystemUnavailable(f"{self.title} has no setting {', '.join(sorted(strange))}")
            settings = {name: value for name, value in settings.items() if name in self.flags}
        flags = [f"--{name}={value}" if value else f"--{name}" for name, value in settings.items()]
        return [str(self.python), "-m", "gateway", "serve", *flags]

    def environment(self) -> dict[str, str]:
        """Return what makes the interpreter find this version first, whatever is installed."""
        return {"PYTHONPATH": str(self.folder)}


THIS: Final = Checkout("this version", SOURCE, Path(sys.executable))


def checkout_of(text: str, scratch: Path) -> Checkout:
    """Make another version ready.

    Args:
        text: a folder that has the package, whose ``.venv`` is used if there is one; else a commit of this repository,
            which runs on this interpreter and its packages.
        scratch: where a commit is unpacked; it has to be there for as long as the version is.

    Raises:
        SystemUnavailable: there is neither, or it does not run.
    """
    folder = Path(text)
    if folder.is_dir():
        folder = folder.resolve()
        own = folder / ".venv" / "bin" / "python"
        python = own if own.exists() else Path(sys.executable)
    else:
        folder, python = scratch / "against", Path(sys.executable)
        folder.mkdir()
        unpack(text, folder)
    return _looked_at(Checkout(_title(text, folder), folder, python))


def unpack(commit: str, folder: Path, *parts: str) -> None:
    """Put a commit into a folder.

    Args:
        commit: of this repository.
        folder: that is there already.
        parts: folders of it that are wanted; all if there are none.

    Raises:
        SystemUnavailable: there is no such commit.
    """
    archive = subprocess.run(["git", "archive", commit, *parts], cwd=SOURCE, capture_output=True, check=False)
    if archive.returncode:
        raise SystemUnavailable(f"no folder and no commit: {commit}: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)


def _title(text: str, folder: Path) -> str:
    if not Path(text).is_dir():
        return text
    found = subprocess.run(
        ["git", "-C", folder, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() if found.returncode == 0 else folder.name


def _looked_at(checkout: Checkout) -> Checkout:
    """Find out whether it is really that version which runs, and which settings it knows."""
    environment = os.environ | checkout.environment()
    place = _said([checkout.python, "-c", "import gateway; print(gateway.__file__)"], environment, checkout)
    if not Path(place.strip()).resolve().is_relative_to(checkout.folder):
        raise SystemUnavailable(f"{checkout.folder} has no package gateway: {place.strip()} would be measured")
    flags = frozenset(
        _FLAG.findall(_said([checkout.python, "-m", "gateway", "serve", "--help"], environment, checkout))
    )
    return Checkout(checkout.title, checkout.folder, checkout.python, flags)


def _said(command: Sequence[str | Path], environment: Mapping[str, str], checkout: Checkout) -> str:
    # Not here, where ``python -m`` would find this version.
    outcome = subprocess.run(command, cwd=checkout.folder, env=environment, capture_output=True, text=True, check=False)
    if outcome.returncode:
        raise SystemUnavailable(f"{checkout.title} does not run: {outcome.stderr.strip()}")
    return outcome.stdout
