"""What runs in a run folder: written by ``up``, read by ``down``, never trusted blindly.

The file names every process with its pid *and* start time, so that a file left over from a crash or an earlier boot
stops nothing that is not ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from gateway.local.identity import ProcessIdentity

_FILE: Final = "stack.json"


class StateUnreadable(Exception):
    """The state file is not what this version writes; the message says what to do."""


@dataclass(frozen=True, slots=True)
class StackState:
    """The processes of a detached stack.

    Attributes:
        base: the first port of the stack.
        processes: which process runs under which name, in the order of their start.
    """

    base: int
    processes: Mapping[str, ProcessIdentity]

    def alive(self) -> dict[str, ProcessIdentity]:
        """Return those that still run."""
        return {name: identity for name, identity in self.processes.items() if identity.alive()}

    def write(self, folder: Path) -> None:
        """Write it into the run folder, replacing what is there in one step."""
        text = json.dumps(
            {
                "base": self.base,
                "processes": {
                    name: {"pid": identity.pid, "started": identity.started}
                    for name, identity in self.processes.items()
                },
            },
            indent=2,
        )
        draft = folder / f"{_FILE}.new"
        draft.write_text(f"{text}\n")
        draft.replace(folder / _FILE)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read what the run folder says; None if it says nothing.

        Raises:
            StateUnreadable: the file is damaged.
        """
        file = folder / _FILE
        try:
            data = json.loads(file.read_text())
            return cls(
                int(data["base"]),
                {
                    str(name): ProcessIdentity(int(entry["pid"]), str(entry["started"]))
                    for name, entry in data["processes"].items()
                },
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateUnreadable(
                f"{file} can not be read ({error!r}): stop the stack's processes by hand, then delete the file"
            ) from error

    @staticmethod
    def forget(folder: Path) -> None:
        """Remove the file: nothing of ours runs here."""
        (folder / _FILE).unlink(missing_ok=True)
