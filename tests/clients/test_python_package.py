"""The Python distributions as others get them: wheels, in empty environments beside what they say they need."""

from __future__ import annotations

import asyncio
import contextlib
import tomllib
import zipfile
from pathlib import Path
from typing import Final

import pytest

from gateway import __version__
from gateway.local.ports import free_port
from gateway.local.processes import ManagedProcess
from scripts.dist import ROOT, build_wheels
from tests.support.times import scaled
from tests.support.wheels import OURS, Environment, required

EXCHANGE: Final = """\
import asyncio, sys
from gateway.client import connect

async def main() -> None:
    async with connect(sys.argv[1], principal="alice") as session:
        async with await session.subscribe("prices/**") as stream:
            await session.publish("prices/ACME", {"bid": 101})
            async for update in stream:
                print(update.topic, update.value["bid"])
                break

asyncio.run(main())
"""
"""What a user writes."""

IMPORT_ALL: Final = """\
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(sorted(name for name in sys.modules if name.split(".")[0] == "gateway"))
"""


def owned(wheel: Path) -> set[str]:
    """The files of a wheel, without its own description."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def modules(wheel: Path) -> list[str]:
    names = (name.removesuffix(".py").removesuffix("/__init__") for name in owned(wheel) if name.endswith(".py"))
    return sorted(name.replace("/", ".") for name in names)


@pytest.fixture(scope="module")
def client_alone(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("client"), wheels[0])


@pytest.fixture
def both(wheels: tuple[Path, Path], tmp_path: Path) -> Environment:
    return Environment(tmp_path / "both", *wheels)


def test_the_same_source_makes_the_same_bytes(wheels: tuple[Path, Path], tmp_path: Path) -> None:
    again = build_wheels(tmp_path)
    assert [path.name for path in again] == [path.name for path in wheels]
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in wheels]


def test_no_file_belongs_to_both_and_none_to_neither(wheels: tuple[Path, Path]) -> None:
    client, server = map(owned, wheels)
    assert client & server == set()
    in_source = {
        str(path.relative_to(ROOT))
        for top in ("gateway", "lb", "pipeline")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert in_source <= client | server
    assert {name.split("/")[0] for name in client} == {"gateway"}


def test_the_server_leaves_out_what_the_client_brings() -> None:
    """The two lists are the same."""
    client = tomllib.loads((ROOT / "clients" / "python" / "pyproject.toml").read_text("utf-8"))
    server = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    brought = client["tool"]["hatch"]["build"]["only-include"]
    assert server["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"] == [f"/{each}" for each in brought]
    assert [each for each in brought if not (ROOT / each).exists()] == []


def test_the_client_needs_little_and_the_server_needs_its_client_of_the_same_version(
    wheels: tuple[Path, Path],
) -> None:
    client, server = map(required, wheels)
    assert {each.name for each in client} == {"aiohttp", "orjson"}
    assert [str(each) for each in server if each.name in OURS] == [f"session-gateway-client=={__version__}"]


def test_each_module_of_the_client_is_imported_where_there_is_nothing_else(
    wheels: tuple[Path, Path], client_alone: Environment
) -> None:
    """With ``-I`` neither the folder nor a variable adds anything to what is installed."""
    client_alone.pip("check")
    linked = {path.name for path in client_alone.packages.iterdir()}
    assert "redis" not in linked
    assert "pydantic" not in linked
    found = client_alone.run("python", "-I", "-c", IMPORT_ALL, *modules(wheels[0]))
    assert found.strip() == str(modules(wheels[0]))


@pytest.mark.thorough
async def test_a_program_with_the_client_alone_speaks_to_an_installed_server(
    both: Environment, client_alone: Environment, tmp_path: Path
) -> None:
    assert both.run("gateway", "--version").split()[-1] == __version__
    assert both.run("lb", "--version").split()[-1] == __version__
    both.pip("check")
    port = free_port()
    command = [str(both.folder / "bin" / "gateway"), "serve", "--dev", "--auth", "anonymous"]
    command += ["--listen", f"127.0.0.1:{port}", "--admin", "127.0.0.1:0"]
    async with ManagedProcess("node", command, log=tmp_path / "node.log", directory=tmp_path) as node:

        async def listens() -> bool:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return True
            return False

        await node.ready(listens, timeout=scaled(30))
        program = ("-I", "-c", EXCHANGE, f"ws://127.0.0.1:{port}")
        assert await asyncio.to_thread(client_alone.run, "python", *program) == "prices/ACME 101\n"


def test_the_client_stays_whole_when_the_server_is_removed(both: Environment, wheels: tuple[Path, Path]) -> None:
    both.pip("uninstall", "--yes", "session-gateway")
    assert not (both.packages / "gateway" / "cli").exists()
    found = both.run("python", "-I", "-c", IMPORT_ALL, *modules(wheels[0]))
    assert found.strip() == str(modules(wheels[0]))
