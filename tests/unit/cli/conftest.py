import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from gateway.cli import main


@dataclass(frozen=True)
class Result:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


Run = Callable[..., Result]


class Stdin(io.StringIO):
    """Standard input that is a pipe, or pretends to be a terminal."""

    def __init__(self, text: str, *, terminal: bool = False) -> None:
        super().__init__(text)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process, without the variables of whoever runs the tests."""
    for name in list(os.environ):
        if name.startswith("GATEWAY_"):
            monkeypatch.delenv(name)

    def call(*arguments: str, stdin: str = "", environment: dict[str, str] | None = None) -> Result:
        for name, value in (environment or {}).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "stdin", Stdin(stdin))
        capfd.readouterr()
        code = main(arguments)
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return call
