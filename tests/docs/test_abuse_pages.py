"""The pages about abuse and conformance tell of what is tried, all of it, and with the figures that were recorded."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Final

from tests.autobahn.outcomes import RECORDED, by_section, differences, read_report
from tests.docs.test_threat_model import EXISTING
from tests.fuzz.__main__ import NAMES
from tests.integration.hostile import test_abuse, test_rfc6455

DOCS: Final = Path(__file__).parents[2] / "docs"
ABUSE: Final = (DOCS / "explanation" / "abuse.md").read_text("utf-8")
CONFORMANCE: Final = (DOCS / "reference" / "conformance.md").read_text("utf-8")


def rows(page: str, first: str) -> list[list[str]]:
    """Return the rows of the table whose first heading is *first*."""
    table = page.partition(f"| {first} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_every_attack_has_its_row_with_its_metric() -> None:
    told = {what: (metric, label) for what, _, metric, label in rows(ABUSE, "attack")}
    made = {
        what: tuple(re.fullmatch(r'(\w+)\{\w+="(\w+)"\}', series).groups())  # type: ignore[union-attr]
        for what, (series, _) in test_abuse.ATTACKS.items()
    }
    assert {what: tuple(cell.strip("`") for cell in cells) for what, cells in told.items()} == made


def test_every_test_that_is_named_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", ABUSE))
    assert len(named) > 5
    assert named <= EXISTING


def test_every_fuzzer_has_its_figures() -> None:
    told = {name for name, *_ in rows(ABUSE, "fuzzer")}
    assert told == {*NAMES, "admin"}


def test_the_outcomes_of_the_suite_are_those_that_were_recorded() -> None:
    recorded = json.loads(RECORDED.read_text())
    told = {section: list(map(int, numbers)) for section, _, *numbers in rows(CONFORMANCE, "section")}
    sections = by_section(recorded)
    order = ("OK", "INFORMATIONAL", "NON-STRICT", "FAILED")
    counted = {name: [count.total(), *(count[each] for each in order)] for name, count in sections.items()}
    total = sum(sections.values(), Counter())
    assert told == counted | {"all": [total.total(), *(total[each] for each in order)]}
    assert total.total() == sum(total[each] for each in order), "nothing came out otherwise"
    named = {number for number, outcome in recorded.items() if outcome != "OK"}
    assert named == {"6.4.1", "6.4.2", "6.4.3", "6.4.4", "7.1.6", "7.13.1", "7.13.2"}, "which the page explains"


def test_our_own_cases_are_counted() -> None:
    told = {rule: int(count) for rule, count in rows(CONFORMANCE, "what of RFC 6455")}
    counted = Counter(name.partition(":")[0] for name in test_rfc6455.CASES)
    assert told == counted | {"all": counted.total()}


def test_a_run_is_compared_case_by_case(tmp_path: Path) -> None:
    report = {
        "1.1.10": {"behavior": "OK", "behaviorClose": "OK"},
        "1.1.2": {"behavior": "FAILED", "behaviorClose": "OK"},
        "7.1.1": {"behavior": "OK", "behaviorClose": "WRONG CODE"},
    }
    (tmp_path / "index.json").write_text(json.dumps({"gateway": report}))
    found = read_report(tmp_path / "index.json")
    assert list(found.items()) == [("1.1.2", "FAILED"), ("1.1.10", "OK"), ("7.1.1", "OK/WRONG CODE")]
    assert differences(found, found) == []
    assert differences(found, {"1.1.2": "OK", "1.1.10": "OK", "9.1.1": "OK"}) == [
        "1.1.2: FAILED, recorded is OK",
        "7.1.1: OK/WRONG CODE, recorded is nothing",
        "9.1.1: not run, recorded is OK",
    ]
