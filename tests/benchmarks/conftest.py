"""The generator, compiled once for each process of the test run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks.generator.driver import build
from benchmarks.systems.base import SystemUnavailable


@pytest.fixture(scope="session")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled generator; skips where there is no compiler, but fails under CI."""
    if sys.platform != "linux":
        pytest.skip("the generator is for Linux: epoll, timerfd")
    try:
        return build(tmp_path_factory.mktemp("generator"))
    except SystemUnavailable as reason:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(str(reason), pytrace=False)
        pytest.skip(str(reason))
