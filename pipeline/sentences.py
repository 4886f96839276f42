"""What to say of an error that comes out of Spark.

What our own code raises inside Spark's workers arrives as a text with the traces of Python and of the JVM around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

_OURS: Final = re.compile(r"^pipeline\.errors\.\w+: (.+)$", re.MULTILINE)
"""How the trace of Python ends if one of our errors was raised: its class, and its sentence."""

_SYSTEM: Final = re.compile(r"^(?:OSError|PermissionError|FileNotFoundError): (.+)$", re.MULTILINE)
"""The same for what the operating system refused: no space left, no permission."""

_RAISED: Final = re.compile(r"^: [\w.$]+: (.+)$", re.MULTILINE)
"""How Py4J begins the trace of what was raised in the JVM, after a line about the call, which helps nobody."""

_CAUSED: Final = re.compile(r"^Caused by: [\w.$]+: (.+)$", re.MULTILINE)

GONE: Final = "Spark's JVM is gone; if it ran out of memory, give it more: --spark-conf spark.driver.memory=4g"
"""What is told when there is nobody left to ask."""

_NO_WORKER: Final = re.compile(
    r"Python worker failed to connect back|Timed out while waiting for the Python worker to connect back|"
    r"Python daemon failed to launch worker|Python failed to launch worker"
)
"""What Spark says if a worker in Python has not answered within ten seconds, which no setting of it changes."""

_LONGEST: Final = 500
"""Characters of a line of Spark's own that are worth reading."""


def sentence_of(error: Exception) -> str:
    """Find the sentence that says what went wrong.

    Args:
        error: raised by Spark.
    """
    told = _texts_of(error)
    if not told:
        return GONE
    text = "\n".join(told)
    for pattern in (_OURS, _SYSTEM):
        if found := pattern.findall(text):
            return str(found[-1])[:_LONGEST]
    raised = _RAISED.search(text)
    first = raised[1] if raised else _first_line(text) or type(error).__name__
    causes = [*map(_first_line, told[1:]), *_CAUSED.findall(text)]
    last = [each for each in causes if each and each not in first][-1:]
    whole = f"{first.rstrip(': .')}: {last[0]}" if last else first
    return f"{whole[:_LONGEST]} (pipeline --traceback … shows where)"


def is_busy(error: Exception) -> bool:
    """Tell whether all that failed was to start a worker in Python: the machine is too busy, perhaps not for long.

    Args:
        error: raised by Spark, or by what it called.
    """
    return any(_NO_WORKER.search(each) for each in _texts_of(error))


def _texts_of(error: Exception) -> list[str]:
    return [text for each in _chain(error) if (text := _text_of(each)) is not None]


def _text_of(error: BaseException) -> str | None:
    """Ask an error for its text; None if it has to ask the JVM for it, which died."""
    try:
        return str(error)
    except (Py4JError, OSError):
        return None


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and what caused it."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = getattr(found, "_cause", None) or found.__cause__
