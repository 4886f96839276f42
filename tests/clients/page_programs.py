"""Programs of pages, saved and started as pages say: in a folder where the clients are installed, and no checkout is.

```python
reader = Reader(folder, environment)
async with reader.started("python", program, node) as running:
    assert await running.line() == "prices/ACME 101"
```
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Final, NamedTuple

from tests.clients.driver import CLIENT, node_environment
from tests.support.nodes import TestNode
from tests.support.times import PATIENCE, time_limit
from tests.support.wheels import Environment

ROOT: Final = Path(__file__).parents[2]
HOW_TOS: Final = ROOT / "docs" / "how-to"
BLOCK: Final = re.compile(r"^ *```(\w+)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SUFFIXES: Final = {"python": ".py", "js": ".mjs", "sh": ".sh"}
CLUSTER: Final = "127.0.0.1:18000"
"""Where the pages say that a cluster is."""


class Block(NamedTuple):
    """A block of a page."""

    language: str
    text: str


def blocks(page: Path, *languages: str) -> list[Block]:
    """Find the blocks of a page in some languages; in all, if none is named."""
    found = [Block(language, dedent(text)) for language, text in BLOCK.findall(page.read_text("utf-8"))]
    return [each for each in found if not languages or each.language in languages]


def programs(page: str, language: str) -> list[str]:
    """Return the texts of a how-to in a language."""
    return [each.text for each in blocks(HOW_TOS / f"{page}.md", language)]


class Running:
    """A program that was started.

    Args:
        process: its process.
    """

    def __init__(self, process: Process) -> None:
        self._process = process

    async def line(self) -> str:
        """Wait for the next line that it prints."""
        assert self._process.stdout is not None
        async with time_limit(PATIENCE):
            return (await self._process.stdout.readline()).decode().rstrip("\n")

    async def rest(self) -> str:
        """Wait until it has ended, which must be well, and return what it has printed since."""
        async with time_limit(PATIENCE):
            said, _ = await self._process.communicate()
        assert self._process.returncode == 0, said.decode()
        return said.decode()

    async def kill(self) -> None:
        """End it without a warning."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


class Reader:
    """Somebody who has installed the clients and follows pages.

    Args:
        folder: where programs are saved; the JavaScript client is installed in it.
        python: where the Python client is installed.

    Attributes:
        folder: where programs are saved, and started.
    """

    def __init__(self, folder: Path, python: Environment) -> None:
        self.folder = folder
        self._python = python.folder / "bin" / "python"
        modules = folder / "node_modules"
        modules.mkdir(exist_ok=True)
        # The files of the tarball, as ``test_javascript_package`` sees to.
        (modules / "session-gateway-client").symlink_to(CLIENT)
        self._saved = 0

    @asynccontextmanager
    async def started(
        self, language: str, text: str, node: TestNode | None = None, **environment: str
    ) -> AsyncIterator[Running]:
        """Save a program and run it until the end of the block.

        Args:
            language: of the block.
            text: of the block.
            node: stands where the page's cluster is; the program has to name that. None if the program has no address.
            environment: variables of the program.
        """
        if node is not None:
            assert CLUSTER in text, f"no address of the cluster:\n{text}"
            text = text.replace(CLUSTER, f"127.0.0.1:{node.gateway.port}")
        self._saved += 1
        file = self.folder / f"program{self._saved}{SUFFIXES[language]}"
        file.write_text(text, "utf-8")
        variables = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
        command = [str(self._python)]
        if language == "js":
            variables["NODE_OPTIONS"] = node_environment()["NODE_OPTIONS"]
            command = [str(shutil.which("node"))]
        elif language == "sh":
            command = [str(shutil.which("bash")), "-e"]
        process = await asyncio.create_subprocess_exec(
            *command, str(file), cwd=self.folder, env=variables | environment, stdout=PIPE, stderr=STDOUT
        )
        running = Running(process)
        try:
            yield running
        finally:
            async with time_limit(PATIENCE):
                await running.kill()

    async def run(self, language: str, text: str, node: TestNode | None = None, **environment: str) -> str:
        """Run a program to its end, and return what it printed; see ``started``."""
        async with self.started(language, text, node, **environment) as running:
            return await running.rest()
