"""Puts the results of a run into the documentation: ``python -m benchmarks.publish .local/bench/results.json``.

It keeps the raw results in ``benchmarks/results``, and writes the README's block, the reference page, the parts of the
explanation that are made from figures, and the pictures of growth. A test does the same and compares.

Results of hostile clients are a run of their own: they are kept in ``benchmarks/results/hostile``, and make the tables
of the threat model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from benchmarks import plots
from benchmarks.catalogue import cases_by_default, systems_by_name
from benchmarks.document import BadResults, Document
from benchmarks.headlines import path_costs, readme_block, summary
from benchmarks.hostile import page as hostile_page
from benchmarks.hostile.case import NAME as HOSTILE
from benchmarks.markdown import drawn, missed, pictures, reference_page

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = Path("benchmarks/results")
README: Final = Path("README.md")
REFERENCE: Final = Path("docs/reference/benchmarks.md")
EXPLANATION: Final = Path("docs/explanation/performance.md")
THREATS: Final = Path("docs/explanation/threat-model.md")
PICTURES: Final = Path("docs/explanation/figures")
"""Relative to the root of the repository."""

BAD_USE: Final = 2
"""Exit code if there is nothing that could be published."""

_BLOCK: Final = re.compile(r"<!-- generated: (\w+) -->\n.*?<!-- end of generated -->", re.DOTALL)
_PATH: Final = re.compile(r"(?<![\w.:/…])/(?:[\w.+-]+/)+([\w.+-]*)")
_DAY: Final = 10
"""Letters of a date in ISO 8601 without the time."""


class _NothingPublished(click.ClickException):
    """Shown to whoever typed the command."""

    exit_code = BAD_USE


def newest(root: Path = ROOT, folder: Path = RESULTS) -> Path | None:
    """Find the results of a folder that the documentation shows; None if there are none yet."""
    return max((root / folder).glob("*.json"), default=None)


def is_hostile(document: Document) -> bool:
    """Tell whether a run is one of hostile clients.

    Raises:
        BadResults: it is that and others, too; each has its own place.
    """
    if HOSTILE not in document.cases:
        return False
    if len(document.cases) > 1:
        raise BadResults(
            f"{HOSTILE} is published by itself: run `make bench ONLY={HOSTILE}` apart from the other cases"
        )
    return True


def stored(document: Document) -> str:
    """Write results the way they are kept: without paths of the machine, a line for each measurement."""
    parts = []
    for name, value in _without_paths(document.as_json()).items():
        text = json.dumps(value, ensure_ascii=False)
        if name == "rows":
            text = "[\n" + ",\n".join(json.dumps(each, ensure_ascii=False) for each in value) + "\n]"
        parts.append(f"{json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _without_paths(value: Any) -> Any:
    if isinstance(value, str):
        return _PATH.sub(r"…/\1", value)
    if isinstance(value, Mapping):
        return {name: _without_paths(each) for name, each in value.items()}
    return [_without_paths(each) for each in value] if isinstance(value, list) else value


def doubts(document: Document) -> list[str]:
    """Tell why a run should not be published: it was a quick one, something failed in it, or parts are missing."""
    if is_hostile(document):
        return list(hostile_page.doubts(document))
    found = []
    if document.quick:
        found.append("it was a quick run, to try things")
    if document.failed:
        found.append("something failed in it")
    if absent := [name for name in cases_by_default() if not any(row.case == name for row in document.rows)]:
        found.append(f"there is nothing of {', '.join(absent)}")
    return found + [
        f"{name} was not measured ({each.unavailable})" for name, each in document.systems.items() if each.unavailable
    ]


def left_out(document: Document) -> list[str]:
    """Tell which peers a run knows nothing of. Kept results may be of a time when there were fewer."""
    if is_hostile(document):
        return []
    return [f"{name} was left out" for name in systems_by_name() if name not in document.systems]


def pages(document: Document, root: Path = ROOT) -> dict[Path, str]:
    """Make the text of all pages that have figures of such a run.

    Args:
        document: the results.
        root: of the repository, whose pages are read for what is written by hand.

    Returns:
        Whole pages by their path, relative to the root.

    Raises:
        OSError: a page cannot be read.
        BadResults: a page has not the generated parts that it should have.
    """
    if is_hostile(document):
        return {THREATS: threat_model(document, root)}
    return {
        README: _filled(root, README, {"benchmarks": readme_block(document)}),
        EXPLANATION: _filled(
            root,
            EXPLANATION,
            {
                "costs": path_costs(document),
                "missed": missed(document),
                "growth": pictures(document, PICTURES.name),
            },
        ),
        REFERENCE: reference_page(document, summary(document)),
    }


def threat_model(document: Document | None, root: Path = ROOT) -> str:
    """Make the text of the threat model with the tables of a run; without one, with how to make it.

    Raises:
        OSError: the page cannot be read.
        BadResults: it has not the generated part that it should have.
    """
    return _filled(root, THREATS, {HOSTILE: hostile_page.tables(document)})


def _filled(root: Path, page: Path, blocks: Mapping[str, str]) -> str:
    text = (root / page).read_text()
    names = _BLOCK.findall(text)
    if sorted(names) != sorted(blocks):
        raise BadResults(f"{page} has the generated parts {names}, and should have {list(blocks)}")
    return _BLOCK.sub(
        lambda found: f"<!-- generated: {found[1]} -->\n\n{blocks[found[1]]}\n\n<!-- end of generated -->", text
    )


def publish(document: Document, root: Path = ROOT) -> list[Path]:
    """Keep results and write everything that shows them; nothing is written unless all of it can be.

    Returns:
        What was written, relative to the root.

    Raises:
        OSError: something cannot be read or written.
        BadResults: see ``pages``.
    """
    hostile = is_hostile(document)
    folder = RESULTS / HOSTILE if hostile else RESULTS
    texts = {folder / f"{document.date[:_DAY]}.json": stored(document)} | pages(document, root)
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    if hostile:
        return [*texts]
    for each in plots.PICTURES:
        (root / PICTURES / each.file).unlink(missing_ok=True)
    plots.draw_all(document.rows, root / PICTURES)
    return [*texts, *(PICTURES / each for each in drawn(document))]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("results", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--anyway", is_flag=True, help="Also if the run was quick or incomplete, or if something failed in it.")
@click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=ROOT,
    show_default="this repository",
    help="Whose pages to write.",
)
def main(results: Path, *, anyway: bool, root: Path) -> None:
    """Keep RESULTS, the JSON of a run, and write the pages and pictures that show them.

    Exits with 2 if RESULTS cannot be published.
    """
    try:
        document = Document.load(results)
        if not anyway and (found := doubts(document) + left_out(document)):
            raise BadResults(f"{results}: not published: {'; '.join(found)}. (--anyway does it all the same.)")
        written = publish(document, root)
    except FileNotFoundError as error:
        raise _NothingPublished(f"{error.filename} is not there; `make bench` writes results") from error
    except (OSError, BadResults) as error:
        raise _NothingPublished(str(error)) from error
    for path in written:
        click.echo(path)


if __name__ == "__main__":
    main()
