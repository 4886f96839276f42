"""Who follows pages with the clients that others install."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.dist import build_wheels
from tests.clients.page_programs import Reader
from tests.support.wheels import Environment, link


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Those of the client and of the server."""
    client, server = build_wheels(tmp_path_factory.mktemp("wheels"))
    return client, server


@pytest.fixture(scope="session")
def reading_environment(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel of the Python client, and what pages without a client say to install."""
    environment = Environment(tmp_path_factory.mktemp("reader"), wheels[0])
    link("requests", "", environment.packages, set())
    return environment


@pytest.fixture
def reader(reading_environment: Environment, tmp_path: Path) -> Reader:
    folder = tmp_path / "reader"
    folder.mkdir()
    return Reader(folder, reading_environment)
