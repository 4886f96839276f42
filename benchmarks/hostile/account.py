"""What witnesses saw, as they write it at their end and the verdict reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter


@dataclass
class Account:
    """What the witnesses saw. Times are seconds of the machine's monotonic clock.

    Attributes:
        updates: for each update and subscriber that got it: when it was due, and how long it took.
        missing: when each was due that was promised, for each subscriber that it did not reach: lost.
        unanswered: when each publish was due that had no answer in the end.
        refused: when each publish was due that was refused, how long that took, and the code.
        cuts: when a witness lost its connection, and what it was told.
        loss_declared: when a subscriber was told that the grid had lost writes (protocol 5.8).
        disordered: updates that came again or before older ones.
        folded: updates that the node folded, and declared.
        logins: when each new session was asked for, how long its welcome took, and why there was none.
        resumes: the same of each resume.
        returns: the same of each return of a session that is there since before the attack.
        late: when each update was due, and how much later the publisher had the CPU to take note of it: by so much the
            witness itself may be wrong.
        ended: when the witness stopped waiting.
    """

    updates: list[tuple[float, float]] = field(default_factory=list)
    missing: list[float] = field(default_factory=list)
    unanswered: list[float] = field(default_factory=list)
    refused: list[tuple[float, float, str]] = field(default_factory=list)
    cuts: list[tuple[float, str]] = field(default_factory=list)
    loss_declared: list[float] = field(default_factory=list)
    disordered: int = 0
    folded: int = 0
    logins: list[tuple[float, float, str]] = field(default_factory=list)
    resumes: list[tuple[float, float, str]] = field(default_factory=list)
    returns: list[tuple[float, float, str]] = field(default_factory=list)
    late: list[tuple[float, float]] = field(default_factory=list)
    ended: float = 0.0

    @classmethod
    def read(cls, file: Path) -> Account:
        """Read what a witness wrote.

        Raises:
            OSError: it cannot be read.
        """
        return TypeAdapter(cls).validate_json(file.read_bytes())

    def write(self, file: Path) -> None:
        """Write it for ``read``."""
        file.write_bytes(TypeAdapter(type(self)).dump_json(self))
