"""What to say of an error that comes out of Spark.

What our own code raises inside Spark's workers arrives as a text with the traces of Python and of the JVM around it.
"""

from __future__ import annotations

import re
from typing import Final

_OURS: Final = re.compile(r"^pipeline\.errors\.\w+: (.+)$", re.MULTILINE)
"""How the trace of Python ends if one of our errors was raised: its class, and its sentence."""

_SYSTEM: Final = re.compile(r"^(?:OSError|PermissionError|FileNotFoundError): (.+)$", re.MULTILINE)
"""The same for what the operating system refused: no space left, no permission."""

_CAUSED: Final = re.compile(r"^Caused by: [\w.$]+: (.+)$", re.MULTILINE)

_LONGEST: Final = 500
"""Characters of a line of Spark's own that are worth reading."""


def sentence_of(error: Exception) -> str:
    """Find the sentence that says what went wrong.

    Args:
        error: raised by Spark.
    """
    text = str(error)
    for pattern in (_OURS, _SYSTEM, _CAUSED):
        if found := pattern.findall(text):
            return str(found[-1])[:_LONGEST]
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return f"{first[:_LONGEST]} (pipeline --traceback … shows where)"
