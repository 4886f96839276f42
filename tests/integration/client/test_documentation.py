"""The reference page of the Python client, against the code; ``tests/clients/test_how_tos`` follows the how-tos."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import gateway.client
from gateway.client import Notice, Receipt, Recovery, Session, Update, UpdateStream, connect

DOCS = Path(__file__).parents[3] / "docs"


def test_the_reference_names_everything_there_is() -> None:
    text = (DOCS / "reference" / "client.md").read_text()
    names = set(gateway.client.__all__) - {"Connecting"}
    for kind in (Update, Receipt, Recovery, Notice):
        names |= {field.name for field in dataclasses.fields(kind)}
    for owner in (Session, UpdateStream):
        names |= {name for name in vars(owner) if not name.startswith("_")} - {"offer", "end", "failed_over"}
    names |= set(inspect.signature(connect).parameters)

    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", text)] == []
