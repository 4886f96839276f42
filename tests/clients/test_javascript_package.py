"""The JavaScript client as others get it: a tarball with types, installed into an empty project."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from gateway import __version__
from scripts.dist import pack_javascript
from tests.clients.driver import CLIENT, node_environment
from tests.support.times import scaled

pytestmark = pytest.mark.thorough

PROGRAM: Final = """\
import { CloseCode, connect, ConnectFailed } from "session-gateway-client";
import type { Receipt, Recovery, Session, Update } from "session-gateway-client";

interface Quote {
  bid: number;
}

const best = new Map<string, number>();

function take({ topic, value, removed, version }: Update): void {
  const quote: Quote = value;
  if (removed) best.delete(topic);
  else best.set(topic, Math.max(quote.bid, best.get(topic) ?? version));
}

async function follow(session: Session): Promise<void> {
  const stream = await session.subscribe("prices/**", { listener: take });
  for await (const update of stream) take(update);
}

async function explain(session: Session): Promise<string | undefined> {
  for await (const recovery of session.recoveries) {
    const told: Recovery = recovery;
    return `${told.outcome} at ${told.node}`;
  }
  return undefined;
}

export async function main(): Promise<void> {
  try {
    const session = await connect(["wss://a.example", new URL("wss://b.example")], {
      principal: "alice",
      secret: async () => "fresh",
      properties: { team: "fx" },
    });
    const receipt: Receipt = await session.publish("prices/ACME", { bid: 1 }, { timeout: 5 });
    console.log(receipt.version, await explain(session), CloseCode, session.state === "connected");
    await follow(session);
  } catch (error) {
    if (!(error instanceof ConnectFailed)) throw error;
    console.log(error.message);
  }
}

// @ts-expect-error: what the types forbid is forbidden
void connect(7);
// @ts-expect-error: a principal is a text
void connect("wss://a.example", { principal: 7 });
"""
"""What a user in TypeScript writes; the last lines show that the types say no."""

OPTIONS: Final = {"strict": True, "noEmit": True, "skipLibCheck": False, "target": "ES2022", "types": []}


def run(*command: str, folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=node_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(100),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The tarball, and where the compiler is."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("packing") / "javascript"
    folder.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(CLIENT / name, folder)
    run("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", folder=folder)
    return pack_javascript(folder / "dist"), folder / "node_modules" / ".bin" / "tsc"


@pytest.fixture(scope="module")
def project(packed: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty project with the tarball installed, which needs nothing else."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "package.json").write_text('{"name": "project", "version": "1.0.0", "type": "module"}')
    run("npm", "install", "--offline", "--no-audit", "--no-fund", "--loglevel=error", str(packed[0]), folder=folder)
    return folder


def test_it_is_installed_from_its_tarball_with_nothing_else(project: Path) -> None:
    installed = sorted(path.name for path in (project / "node_modules").iterdir() if not path.name.startswith("."))
    assert installed == ["session-gateway-client"]
    package = project / "node_modules" / "session-gateway-client"
    assert sorted(path.name for path in package.iterdir()) == ["README.md", "package.json", "src", "types"]
    source, packed = CLIENT / "src", package / "src"
    names = sorted(path.relative_to(source) for path in source.rglob("*.js"))
    assert sorted(path.relative_to(packed) for path in packed.rglob("*") if path.is_file()) == names
    assert [name for name in names if (source / name).read_bytes() != (packed / name).read_bytes()] == []
    script = 'import * as client from "session-gateway-client"; console.log(client.VERSION, typeof client.connect);'
    assert run("node", "--input-type=module", "--eval", script, folder=project) == f"{__version__} function\n"


@pytest.mark.parametrize("resolution", [("ES2022", "bundler"), ("NodeNext", "NodeNext")], ids=lambda each: each[1])
def test_a_program_in_typescript_passes_the_strictest_checks(
    packed: tuple[Path, Path], project: Path, resolution: tuple[str, str]
) -> None:
    """The declarations are checked as well (``skipLibCheck`` is off)."""
    (project / "program.ts").write_text(PROGRAM)
    module, strategy = resolution
    options = OPTIONS | {"lib": ["ES2022", "DOM", "DOM.Iterable"], "module": module, "moduleResolution": strategy}
    configuration = {"compilerOptions": options, "files": ["program.ts"]}
    (project / "tsconfig.json").write_text(json.dumps(configuration))

    assert run(str(packed[1]), "--project", "tsconfig.json", folder=project) == ""
