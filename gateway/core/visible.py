"""Text of strangers, made fit to be shown: no terminal and no log obeys it."""

from __future__ import annotations


def visible(text: str) -> str:
    r"""Write a text so that every character can be seen, and stays on its line.

    Args:
        text: anything.

    Returns:
        The same, with control characters, line breaks, characters that turn the direction of writing and whatever else
        is not printable as escapes such as ``\x1b``.
    """
    return text if text.isprintable() else "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
