"""Writes the tables of ``docs/reference/lb.md`` from the declared settings: ``python -m lb.reference FILE``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lb.settings import Checks, Frontend, Node, NodesTls, Process, Statistics, Timeouts
from lb.topology import Topology

BEGIN: Final = "<!-- generated from lb/settings.py: begin -->"
END: Final = "<!-- generated from lb/settings.py: end -->"

_SECTIONS: Final[tuple[tuple[str, type[BaseModel]], ...]] = (
    ("Top level", Topology),
    ("`[[nodes]]`", Node),
    ("`[frontend]`", Frontend),
    ("`[nodes_tls]`", NodesTls),
    ("`[timeouts]`", Timeouts),
    ("`[checks]`", Checks),
    ("`[statistics]`", Statistics),
    ("`[process]`", Process),
)


def settings_reference() -> str:
    """Describe every setting of a topology file: name, default, meaning."""
    return "\n".join(line for title, section in _SECTIONS for line in _table(title, section))


def refresh(page: str) -> str:
    """Put the present settings between the two marks of a page.

    Raises:
        ValueError: a mark is missing.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks {BEGIN if not begin else END}")
    return f"{before}{BEGIN}\n\n{settings_reference()}\n{END}{after}"


def _table(title: str, section: type[BaseModel]) -> Iterator[str]:
    yield f"### {title}"
    yield ""
    if section.__doc__ and section is not Topology:
        yield section.__doc__
        yield ""
    yield "| setting | default | meaning |"
    yield "|---|---|---|"
    for name, field in section.model_fields.items():
        # Sections have tables of their own.
        if not isinstance(field.default, BaseModel):
            yield f"| `{name}` | {_default(name, field)} | {field.description} |"
    yield ""


def _default(name: str, field: FieldInfo) -> str:
    if name == "nodes":
        return "three local ones"
    if field.is_required():
        return "required"
    match field.default:
        case None:
            return "none"
        case StrEnum() as choice:
            return f"`{json.dumps(choice.value)}`"
        case value:
            return f"`{json.dumps(value)}`"


def main() -> None:
    """Refresh the page whose path is the first argument."""
    page = Path(sys.argv[1])
    page.write_text(refresh(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
