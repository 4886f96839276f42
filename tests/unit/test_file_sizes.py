"""Files stay small enough to be read in one sitting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

MAX_LINES: Final = 600
"""Lines of one source file; the aim is half of that."""

SUFFIXES: Final = frozenset({".py", ".lua", ".js", ".mjs", ".css"})

NOT_OURS: Final = frozenset({"node_modules", "build", "dist", "venv"})
"""Folders of generated or installed files, besides all whose name begins with a dot."""

ROOT: Final = Path(__file__).resolve().parents[2]


def sources(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in NOT_OURS or path.is_symlink():
            continue
        if path.is_dir():
            yield from sources(path)
        elif path.suffix in SUFFIXES:
            yield path


def test_no_source_file_is_too_long() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in sources(ROOT)}
    assert len(lengths) > 20, "the sources were not found"
    too_long = {str(path): length for path, length in lengths.items() if length > MAX_LINES}
    assert not too_long, f"split these files; the budget is {MAX_LINES} lines: {too_long}"
