"""Tells people what is going on while nothing can be seen yet."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Where cases say what they do now."""

    def say(self, what: str) -> None:
        """Show *what* as the present step, such as ``opening 10,000 connections``; it replaces the one before."""


class Silent:
    """For tests: says nothing."""

    def say(self, what: str) -> None:
        """See ``Progress``."""
