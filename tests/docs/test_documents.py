"""What the documents say can be followed: links lead somewhere, examples compile, commands and names exist.

Nothing is executed here. The programs of how-tos are followed by ``tests/clients/test_how_tos``, the examples of the
protocol by ``test_protocol_examples``.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import click
import pytest
from pydantic import BaseModel

import gateway.client
from gateway.adapters.destination_file import read_destinations
from gateway.adapters.policy import read_policy
from gateway.catalogue import log_events, metrics
from gateway.cli.program import program as gateway_program
from gateway.core import journal
from gateway.core.hooks.cursor import GapReason
from gateway.core.wire import packets
from gateway.core.wire.codes import CLOSE_CODES, ErrorCode, FailoverReason, Outcome
from gateway.lazy_commands import LazyGroup
from gateway.settings import (
    AUTHENTICATOR_FILES,
    OTHER_VARIABLES,
    SETTINGS,
    read_callback_settings,
    read_jwt_settings,
)
from gateway.settings.declaration import declared_in
from gateway.settings.grid_url import SENTINEL_OPTIONS
from gateway.settings.hooks import HookSettings, read_hooks
from lb.cli import main as lb_program
from lb.topology import Topology, build
from pipeline.bronze.source import NAME as BRONZE_SOURCE
from pipeline.cli.program import program as pipeline_program
from pipeline.configuration import FILE_VARIABLE as PIPELINE_FILE
from pipeline.configuration import SETTINGS as PIPELINE_SETTINGS
from pipeline.configuration import load as load_pipeline
from pipeline.gold.tables import TABLES
from pipeline.schemas import INTERVAL_COLUMNS, SILVER_COLUMNS
from pipeline.source.datasource import NAME as JOURNAL_SOURCE

ROOT: Final = Path(__file__).resolve().parents[2]
DOCUMENTS: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "examples" / "README.md"])
GUIDES: Final = [path for path in DOCUMENTS if "reference" not in path.parts]
"""Pages that people write by hand. The reference is generated, or compared with the code by tests of its own."""

PROGRAMS: Final[dict[str, click.Command]] = {
    "gateway": gateway_program,
    "lb": lb_program,
    "pipeline": pipeline_program,
}
PACKAGES: Final = frozenset({*PROGRAMS, "benchmarks", "examples", "scripts", "loadtests"})
"""Where the modules are that ``python -m`` runs."""
PROGRAM_PACKAGES: Final = (
    *("benchmarks", "benchmarks.model", "examples", "scripts.dashboards", "gateway.local", "loadtests", "tests.chaos"),
)
"""Those of them that have options which pages speak of."""
SHELLS: Final = frozenset({"sh", "shell", "bash", "console"})
BREAKS: Final = re.compile(r"^[;|&()<>]+$")
"""Words of a shell line that end a command."""
PREFIXES: Final = frozenset({"do", "then", "until", "while", "if", "!", "exec", "sudo"})
"""Words that may stand before a command."""
PATHS: Final = re.compile(r"(?:gateway|lb|pipeline|tests|docs|scripts|deploy|benchmarks|charts|loadtests)/[\w./-]*")
_PROVIDERS: Final = ("jwks_uri", "realm_access", "resource_access")
FOREIGN: Final = (
    "test_",
    "haproxy_",
    "process_",
    "python_",
    "run_id",
    "ssl_",
    "io_uring",
    "memory.max",
    "spark.",
    *_PROVIDERS,
)
"""How names begin that others give: HAProxy's metrics, those of Prometheus's client, what Redis tells of itself,
redis-py's options in URLs, Linux, Spark's settings, identity providers; and tests, which ``test_threat_model``
compares."""
AUTHENTICATOR_READERS: Final = {"issuer": read_jwt_settings, "url": read_callback_settings}
"""What reads a file for ``auth``, by a key that each of them has."""
SUFFIXES: Final = frozenset({"cfg", "lua", "md", "py", "toml", "yml"})
"""What makes a dotted name the name of a file."""


class Block(NamedTuple):
    """A fenced block, with the line its text begins at."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


class Page(NamedTuple):
    """A document, with its fenced blocks taken out of its prose."""

    path: Path
    prose: str
    blocks: tuple[Block, ...]

    @property
    def spans(self) -> list[str]:
        """Inline code, unwrapped."""
        return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", self.prose)]


@cache
def read(path: Path) -> Page:
    prose: list[str] = []
    blocks: list[Block] = []
    inside: list[str] | None = None
    start, language = 0, ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = re.match(r"\s*```(\S*)", line)
        if fence and inside is None:
            inside, start, language = [], number + 1, fence[1]
        elif fence and inside is not None:
            blocks.append(Block(path, start, language, "\n".join(inside) + "\n"))
            inside = None
        elif inside is not None:
            inside.append(line)
        prose.append("" if fence or inside is not None else line)
    assert inside is None, f"{path.relative_to(ROOT)}:{start}: the block is never closed"
    return Page(path, "\n".join(prose), tuple(blocks))


def blocks_of(*languages: str) -> list[Block]:
    return [block for path in DOCUMENTS for block in read(path).blocks if block.language in languages]


def by_place(value: object) -> str:
    return value.place if isinstance(value, Block) else str(value)


def by_path(value: object) -> str:
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else str(value)


# Links ----------------------------------------------------------------------------------------------------------------


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of a page's headings, made as GitHub makes them."""
    found: dict[str, int] = {}
    names: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", read(path).prose, re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
        names.add(f"{slug}-{found[slug]}" if found[slug] else slug)
    return frozenset(names)


@pytest.mark.parametrize("path", DOCUMENTS, ids=by_path)
def test_links_lead_somewhere(path: Path) -> None:
    broken = []
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", read(path).prose)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        other = (path.parent / file).resolve() if file else path
        if not other.is_relative_to(ROOT) or not other.exists():
            broken.append(f"{target}: there is no such file in the repository")
        elif anchor and anchor not in anchors(other):
            broken.append(f"{target}: there is no such heading")
    assert broken == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        path = waiting.pop()
        if path in reached:
            continue
        reached.add(path)
        links = re.findall(r"\]\(([^)#\s:]+\.md)", read(path).prose)
        waiting += [target for link in links if (target := (path.parent / link).resolve()).is_file()]
    assert [by_path(path) for path in DOCUMENTS if path not in reached] == []


# Examples -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", blocks_of("python"), ids=by_place)
def test_python_compiles_and_imports_what_exists(block: Block) -> None:
    source = "\n" * (block.line - 1) + block.text
    compile(source, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PROGRAMS:
            module = importlib.import_module(node.module or "")
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            assert missing == [], f"{block.place}: {node.module} has no such name"


@pytest.mark.parametrize("block", blocks_of("toml"), ids=by_place)
def test_toml_has_settings_that_exist(block: Block, tmp_path: Path) -> None:
    values = tomllib.loads(block.text)
    if {"nodes", "frontend"} & values.keys():
        build(values, source=block.place)
    elif reader := next((read for key, read in AUTHENTICATOR_READERS.items() if key in values), None):
        file = tmp_path / "authenticator.toml"
        file.write_text(block.text, "utf-8")
        reader(file)
    elif "roles" in values:
        file = tmp_path / "policy.toml"
        file.write_text(block.text, "utf-8")
        read_policy(file)
    elif "destination" in values:
        file = tmp_path / "destinations.toml"
        file.write_text(block.text, "utf-8")
        read_destinations(file)
    elif "hook" in values:
        file = tmp_path / "hooks.toml"
        file.write_text(block.text, "utf-8")
        for hook in values["hook"]:
            secret = tmp_path / hook["secret_file"]
            secret.parent.mkdir(exist_ok=True)
            secret.write_text(f"whsec_{'A' * 32}", "utf-8")
        read_hooks(file)
    elif "lake" in values:
        file = tmp_path / "pipeline.toml"
        file.write_text(block.text, "utf-8")
        load_pipeline(file=file, environment={})
    else:
        assert [name for name in values if name not in SETTINGS] == []


# Commands -------------------------------------------------------------------------------------------------------------


def shell_lines(block: Block) -> Iterator[str]:
    """What a reader would type; in a console block that is what follows the prompt."""
    text = block.text.replace("\\\n", " ")
    for line in text.splitlines():
        if block.language != "console":
            yield line
        elif line.startswith("$ "):
            yield line.removeprefix("$ ")


def commands(line: str) -> Iterator[list[str]]:
    """The simple commands of a shell line, as words."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if skip:  # the file of a redirection belongs to no command
            skip = False
        elif BREAKS.match(word):
            skip = "<" in word or ">" in word
            if not skip and words:
                yield words
                words = []
        elif words or not (word in PREFIXES or re.match(r"\w+=", word)):
            words.append(word)


def typed() -> Iterator[tuple[str, list[str]]]:
    """Every command in a shell block that is one of ours, or runs one of our modules."""
    for block in blocks_of(*SHELLS):
        for line in shell_lines(block):
            for words in commands(line):
                yield f"{block.place}: {' '.join(words)}", [words[0].removeprefix(".venv/bin/"), *words[1:]]


def mentioned() -> Iterator[tuple[str, list[str]]]:
    """Every command in inline code, which may leave arguments out."""
    for path in DOCUMENTS:
        for span in read(path).spans:
            if re.match(r"(?:\.venv/bin/)?(?:gateway|lb|pipeline|make|python) [\w-]", span):
                words = [word for word in shlex.split(span) if word != "…"]
                yield f"{by_path(path)}: {span}", [words[0].removeprefix(".venv/bin/"), *words[1:]]


def check_click(command: click.Command, words: list[str], *, complete: bool) -> None:
    """Follow *words* into the sub-commands and parse the options there.

    Raises:
        click.UsageError: there is no such command or option, or, if *complete*, an argument is missing or unfit.
    """
    context = click.Context(command, info_name="documented")
    while isinstance(command, click.Group):
        while words and words[0].startswith("-"):
            command.make_parser(context).parse_args([words[0]])
            words = words[1:]
        if not words:
            return
        found = command.get_command(context, words[0])
        if found is None:
            raise click.UsageError(f"no such command: {words[0]}")
        command, words = found, words[1:]
        context = click.Context(command, info_name=command.name)
    if complete:
        with suppress(click.exceptions.Exit):  # --help
            command.make_context(command.name, list(words))
    else:
        with suppress(click.BadOptionUsage):  # an option is named without its value
            command.make_parser(context).parse_args(list(words))


def main_module(name: str) -> str | None:
    """Returns the module that ``python -m`` runs; None if there is none, or nothing to run in it."""
    with suppress(ModuleNotFoundError):
        found = importlib.util.find_spec(name)
        if found is not None and found.submodule_search_locations is not None:
            found = importlib.util.find_spec(f"{name}.__main__")
        if found is not None and found.origin is not None:
            guarded = "__main__" in Path(found.origin).read_text(encoding="utf-8")
            return found.name if guarded or found.name.endswith(".__main__") else None
    return None


@cache
def command_of(module: str) -> click.Command | None:
    """Returns the command, or the group of them, that a module defines; None if it has no such thing."""
    commands = [
        each
        for each in vars(importlib.import_module(module)).values()
        if isinstance(each, click.Command) and each.callback is not None and each.callback.__module__ == module
    ]
    return next((each for each in commands if isinstance(each, click.Group)), next(iter(commands), None))


@cache
def makefile() -> tuple[frozenset[str], frozenset[str]]:
    """Targets and variables of the Makefile."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z][a-z -]*):", text, re.MULTILINE)
    return (
        frozenset(name for line in targets for name in line.split()),
        frozenset(re.findall(r"^([A-Z_]+) *\?=", text, re.MULTILINE)),
    )


def check(words: list[str], *, complete: bool) -> str | None:
    """Returns what is wrong with a command; None if nothing is, or if it is not one of ours."""
    name, *rest = words
    if name in PROGRAMS:
        try:
            check_click(PROGRAMS[name], rest, complete=complete)
        except click.UsageError as error:
            return error.format_message()
    elif name == "make":
        targets, variables = makefile()
        wrong = [word for word in rest if (word.split("=")[0] not in variables if "=" in word else word not in targets)]
        return f"the Makefile does not know {wrong}" if wrong else None
    elif name == "python" and rest[:1] == ["-m"]:
        if rest[1].split(".")[0] in PACKAGES:
            found = main_module(rest[1])
            if found is None:
                return f"there is no module {rest[1]} to run"
            try:
                if command := command_of(found):
                    check_click(command, rest[2:], complete=complete)
            except click.UsageError as error:
                return error.format_message()
        gone = [word for word in rest[2:] if PATHS.fullmatch(word) and not (ROOT / word).exists()]
        return f"there is no {gone}" if gone else None
    return None


def test_commands_to_type_are_right() -> None:
    found = list(typed())
    assert sum(words[0] in {*PROGRAMS, "make"} for _, words in found) > 20, "the commands were not found"
    assert [f"{place}: {wrong}" for place, words in found if (wrong := check(words, complete=True))] == []


def test_commands_that_are_mentioned_exist() -> None:
    found = list(mentioned())
    assert len(found) > 20, "the commands were not found"
    assert [f"{place}: {wrong}" for place, words in found if (wrong := check(words, complete=False))] == []


@pytest.mark.parametrize(
    "line",
    [
        "gateway serv --node n1",
        "gateway serve --nod n1",
        "gateway pub only-a-topic",
        "gateway sub x --timeout soon",
        "lb drain",
        "cat token | lb drian n1",
        "make dmeo",
        "make up PORTBASE=1",
        "python -m gateway.nothing",
        "python -m gateway.core",
        "python -m gateway.local demmo",
        "python -m benchmarks --onyl fanout",
        "python -m benchmarks.model plan --session 10",
        "python -m pytest tests/nothing",
    ],
)
def test_a_wrong_command_is_found(line: str) -> None:
    assert any(check(words, complete=True) for words in commands(line))


def options(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    if isinstance(command, click.Group):
        for each in (command.load() if isinstance(command, LazyGroup) else command.commands).values():
            yield from options(each)


def test_options_that_are_mentioned_exist() -> None:
    modules = filter(None, map(command_of, map("{}.__main__".format, PROGRAM_PACKAGES)))
    known = {option for each in (*PROGRAMS.values(), *modules) for option in options(each)} | {"--help"}
    spans = [(path, span.split()[0]) for path in DOCUMENTS for span in read(path).spans if re.match(r"--\w", span)]
    assert [f"{by_path(path)}: {flag}" for path, flag in spans if flag.split("=")[0] not in known] == []


OWN_PACKAGES: Final = ("session-gateway", "session_gateway")
"""What our distributions begin with. None of them is on an index."""


def test_nothing_of_ours_is_fetched_from_an_index() -> None:
    """They are installed from a checkout or from files; a name that somebody else may take is nobody's to install."""
    named: list[str] = []
    files = [
        *DOCUMENTS,
        *(ROOT / "deploy").rglob("*"),
        *(ROOT / "gateway").rglob("*.py"),
        *(ROOT / "pipeline").rglob("*.py"),
    ]
    for path in files:
        if not path.is_file() or path.suffix in {".json", ".svg", ".png", ".pyc"} or "secrets" in path.parts:
            continue
        for line in path.read_text("utf-8").splitlines():
            found = re.search(r"(?:pip\d?|uv|npm|pnpm|yarn|pipx) (?:install|add|i)\b(.*)", line)
            if found is None:
                continue
            words = re.findall(r"[^\s'\"`]+", found[1])
            named += [
                f"{by_path(path)}: {word}"
                for word in words
                if word.startswith(OWN_PACKAGES) and "/" not in word and ".whl" not in word
            ]
    assert named == []


# Names ----------------------------------------------------------------------------------------------------------------


def topology_names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        for kind in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from topology_names(kind, "" if name == "nodes" else f"{name}.")


@cache
def known_names() -> frozenset[str]:
    """Everything a snake_case name in a page may stand for."""
    names = {*SETTINGS, *PIPELINE_SETTINGS, *SENTINEL_OPTIONS, *topology_names(Topology)}
    names |= {each.name for each in log_events.LOG_EVENTS}
    names |= {each.name for each in metrics.METRICS}
    names |= {value for each in metrics.METRICS for value in each.values}
    names |= {str(each) for kind in (ErrorCode, FailoverReason, Outcome, packets.NoticeCode) for each in kind}
    names |= {each.name for each in CLOSE_CODES}
    names |= {*journal.FIELDS, *journal.EVENT_TYPES, JOURNAL_SOURCE, BRONZE_SOURCE}
    names |= {each.name for each in (*SILVER_COLUMNS, *INTERVAL_COLUMNS)}
    names |= {name for each in TABLES.values() for name in (each.name, *(column.name for column in each.columns))}
    names |= {each.name for _, _, keys in AUTHENTICATOR_FILES for each in keys}
    names |= {each.name for each in declared_in(HookSettings, "")} | {each.value for each in GapReason}
    for kind in vars(packets).values():
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            names |= {field.name for field in dataclasses.fields(kind)}
    for name in gateway.client.__all__:
        each = getattr(gateway.client, name)
        if inspect.isclass(each):
            names |= set(dir(each)) | {*getattr(each, "__dataclass_fields__", ())}
        if inspect.isfunction(each):
            names |= set(inspect.signature(each).parameters)
    return frozenset(names)


@pytest.mark.parametrize("path", GUIDES, ids=by_path)
def test_names_that_are_mentioned_exist(path: Path) -> None:
    """A setting, metric, event or code that was renamed must not live on in a page."""
    own = {name for block in read(path).blocks for name in re.findall(r"\w+", block.text)}
    sections = {name.partition(".")[0] for name in known_names() if "." in name}
    unknown = []
    for span in read(path).spans:
        found = re.match(r"([a-z]+(?:[._][a-z]+)*)(?=$|[{=(]| =)", span)
        if found is None or not re.search("[._]", name := found[1]) or name.startswith(FOREIGN) or name in own:
            continue
        owner, _, last = name.rpartition(".")
        if name not in known_names() and (owner in sections or last not in known_names() | SUFFIXES):
            unknown.append(span)
    assert unknown == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=by_path)
def test_variables_and_files_that_are_mentioned_exist(path: Path) -> None:
    variables = {each.variable for each in SETTINGS.values()} | set(OTHER_VARIABLES)
    named = re.findall(r"\bGATEWAY_[A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8"))
    assert sorted({name for name in named if name not in variables}) == []
    ours = {each.variable for each in PIPELINE_SETTINGS.values()} | {PIPELINE_FILE}
    named = re.findall(r"\bPIPELINE_[A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8"))
    assert sorted({name for name in named if name not in ours}) == []
    files = [span for span in read(path).spans if PATHS.fullmatch(span)]
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_the_readme_shows_the_table_that_the_demo_prints() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "gateway" / "local").glob("*.py"))
    table = next(block.text for block in read(ROOT / "README.md").blocks if "recovery outcome" in block.text)
    labels = [row[1] for row in re.finditer(r"^[│┃] +(.+?) +[│┃]", table, re.MULTILINE)]
    outcomes = {str(each) for each in Outcome}
    assert len(labels) > 8
    assert [label for label in labels if label not in sources and label not in outcomes] == []
