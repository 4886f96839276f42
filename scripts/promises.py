"""Write the page that says of each promise which tests try to break it.

```console
$ python -m scripts.promises      # writes docs/reference/promises.md
```

What is promised is written in ``docs/explanation/architecture.md``. Which tests try to break it is written there:
``pytest.mark.promise("P3")`` above a function, or in the ``pytestmark`` of a module for all tests of the module. Both
are read without importing anything. ``tests/docs/test_promises.py`` compares the committed page with what this makes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
ARCHITECTURE: Final = Path("docs", "explanation", "architecture.md")
PAGE: Final = Path("docs", "reference", "promises.md")
TESTS: Final = Path("tests")

MARK: Final = "pytest.mark.promise"

PROMISE: Final = re.compile(
    r"^### (P\d+): ([^\n]+)\n\n(.+?)\n\n\*(Kept in part|Kept|Planned)\.\*[ ]*(.*?)\n(?=\n#|\Z)",
    re.MULTILINE | re.DOTALL,
)
"""A promise on the page: number, title, what is promised, its state, and what there is to say about that."""

JUDGES: Final = {
    "make demo": Path("gateway", "local"),
    "make chaos": Path("tests", "chaos"),
    "python -m tests.browser": Path("tests", "browser"),
}
"""Programs that break a cluster, at random or as a demonstration, and judge what it did: command and source."""

INTRODUCTION: Final = """\
What the gateway promises is written in [Architecture](../explanation/architecture.md#promises). This page lists, for
each promise, its state and every test that tries to break it. A test is listed because it carries the mark `promise` in
its source. The test suite fails if a promise that is kept has no test, or if this page is not what the marks say."""


class State(Enum):
    """How far a promise is kept."""

    KEPT = "Kept"
    IN_PART = "Kept in part"
    PLANNED = "Planned"


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise of the gateway.

    Attributes:
        number: ``P1`` and so on.
        title: in some words.
        text: what is promised, in Markdown, with links that start from the folder of the reference.
        state: how far it is kept.
        remark: what is kept, or what is missing; empty if there is nothing to say.
    """

    number: str
    title: str
    text: str
    state: State
    remark: str

    @property
    def anchor(self) -> str:
        """Of its heading, as GitHub makes it."""
        return re.sub(r"[^\w\- ]", "", f"{self.number}: {self.title}".lower()).replace(" ", "-")


@dataclass(frozen=True, slots=True)
class TestFile:
    """A module of tests.

    Attributes:
        path: from the top of the repository.
        summary: first sentence of its docstring, in Markdown; empty if it has none.
        tests: name of each test and the promises that it tries to break, in the order of the file.
    """

    __test__ = False

    path: Path
    summary: str
    tests: Sequence[tuple[str, frozenset[str]]]

    def about(self, number: str) -> list[str]:
        """List the tests that try to break a promise."""
        return [name for name, numbers in self.tests if number in numbers]


def read_promises(root: Path = ROOT) -> list[Promise]:
    """Read the promises from the page about the architecture, in its order."""
    page = (root / ARCHITECTURE).read_text("utf-8")
    return [
        Promise(number, title, _moved(text), State(state), _moved(remark))
        for number, title, text, state, remark in PROMISE.findall(page)
    ]


def _moved(text: str) -> str:
    """Unwrap a text of that page, and have its links start from the folder of the other page."""
    return re.sub(r"\]\((?=[\w-]+\.md)", f"](../{ARCHITECTURE.parent.name}/", " ".join(text.split()))


@cache
def read_tests(root: Path) -> Sequence[TestFile]:
    """Read, once, which promises the tests of all modules try to break."""
    return tuple(read_test_file(file, root) for file in sorted((root / TESTS).rglob("test_*.py")))


def read_test_file(file: Path, root: Path = ROOT) -> TestFile:
    """Read which promises the tests of one module try to break.

    Args:
        file: the module.
        root: top of the repository.

    Raises:
        ValueError: a mark names its promises by something else than texts.
    """
    tree = ast.parse(file.read_text("utf-8"))
    for_all = frozenset(
        number
        for each in tree.body
        if isinstance(each, ast.Assign) and [ast.unparse(target) for target in each.targets] == ["pytestmark"]
        for number in _marked(each.value, file)
    )
    tests = [
        (each.name, for_all | {number for mark in each.decorator_list for number in _marked(mark, file)})
        for each in tree.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_")
    ]
    return TestFile(file.relative_to(root), _summary(ast.get_docstring(tree) or ""), tests)


def _marked(mark: ast.expr, file: Path) -> Iterator[str]:
    for each in ast.walk(mark):
        if isinstance(each, ast.Call) and ast.unparse(each.func) == MARK:
            if each.keywords or not each.args:
                raise ValueError(f'{file}:{each.lineno}: name the promises, as in {MARK}("P3")')
            for argument in each.args:
                match argument:
                    case ast.Constant(str(number)):
                        yield number
                    case _:
                        raise ValueError(f"{file}:{argument.lineno}: a promise is named by a text such as 'P3'")


def _summary(docstring: str) -> str:
    """Take the first paragraph, without the promises in brackets: the page says them already."""
    first = " ".join(docstring.partition("\n\n")[0].split()).replace("``", "`")
    return re.sub(r"\s*\((?:P\d+(?:, )?)+\)|(?<=\()(?:P\d+, )+", "", first).rstrip(".")


def read_judges(root: Path = ROOT) -> dict[str, list[str]]:
    """Find which promises the programs judge that break a cluster: the promises' numbers are texts of their source.

    Returns:
        The commands by the number of the promise.
    """
    found: dict[str, list[str]] = {}
    for command, folder in JUDGES.items():
        files = [file for file in (root / folder).rglob("*.py") if not file.name.startswith("test_")]
        texts = {
            each.value
            for file in files
            for each in ast.walk(ast.parse(file.read_text("utf-8")))
            if isinstance(each, ast.Constant) and isinstance(each.value, str)
        }
        for number in filter(re.compile(r"P\d+").fullmatch, sorted(texts)):
            found.setdefault(number, []).append(command)
    return found


def make_page(root: Path = ROOT) -> str:
    """Make the page."""
    promises, files, judges = read_promises(root), read_tests(root), read_judges(root)
    rows = [
        f"| [{each.number}](#{each.anchor}) | {each.title} | {each.state.value.lower()} | "
        f"{sum(len(file.about(each.number)) for file in files) or ''} |"
        for each in promises
    ]
    blocks = [
        "<!-- Generated by `python -m scripts.promises`; change the source, not this. -->",
        "# Promises and the tests that try to break them",
        INTRODUCTION,
        "\n".join(["| | promise | state | tests |", "| --- | --- | --- | --: |", *rows]),
    ]
    for each in promises:
        blocks += [f"## {each.number}: {each.title}", each.text, f"*{each.state.value}.* {each.remark}".rstrip()]
        if listed := "\n".join(_listed(each.number, files)):
            blocks.append(listed)
        if commands := judges.get(each.number):
            named = ", ".join(f"`{command}`" for command in commands)
            blocks.append(f"Besides these tests, it is judged in every run of {named}.")
    return "\n\n".join(blocks) + "\n"


def _listed(number: str, files: Sequence[TestFile]) -> Iterator[str]:
    for file in files:
        if tests := file.about(number):
            link = f"[{file.path.relative_to(TESTS).as_posix()}](../../{file.path.as_posix()})"
            yield f"- {link}: {file.summary}" if file.summary else f"- {link}"
            yield from (f"  - `{test}`" for test in tests)


if __name__ == "__main__":
    (ROOT / PAGE).write_text(make_page(), "utf-8")
