"""What the documentation says of speed: it is what the stored results say, and nothing else is published."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import plots
from benchmarks.cases import fanout, own_topic
from benchmarks.cases.base import OURS, Reference, Results, Row
from benchmarks.catalogue import cases_by_default, cases_by_name, systems_by_name
from benchmarks.document import FORMAT, BadResults, Document
from benchmarks.headlines import HEADLINES, IN_README, PARTS, readme_block, summary
from benchmarks.markdown import missed, plain, reference_page
from benchmarks.publish import (
    BAD_USE,
    EXPLANATION,
    PICTURES,
    README,
    REFERENCE,
    RESULTS,
    ROOT,
    doubts,
    main,
    newest,
    pages,
    publish,
    stored,
)
from benchmarks.verdict import judge

MADE_FOR = 5.0
"""Value of every measurement in the results made here; rounds differ by a tenth."""


def made(**changes: Any) -> Document:
    """Results of a run of all cases and systems, three rounds, in which only our 10,000 idle sessions miss a target."""
    cases = cases_by_default()
    targets = [target for case in cases.values() for target in case.targets]
    subjects = {each.subject for each in targets} | {each.reference for each in targets if each.reference}
    rows = [
        Row(
            each.case,
            each.variant,
            each.contestant,
            {each.figure: MADE_FOR + number},
            details={"at": "/srv/run/x.log"},
        )
        for number in (-0.1, 0.0, 0.1)
        for each in sorted(subjects, key=str)
    ]
    rows += [
        Row("growth", f"{size:,} {picture.size}", OURS, {name: float(size)})
        for picture in plots.PICTURES
        for size in (10, 1_000)
        for name in picture.figures
    ]
    rows += [Row(each, "flat", OURS, {}) for each in cases]
    content = {
        "format": FORMAT,
        "date": "2026-01-02T03:04:05+00:00",
        "commit": "0123456789ab",
        "machine": {"processor": "P", "cores": 2, "memory": "1 kB", "kernel": "Linux 6", "distribution": "D"},
        "quick": False,
        "cases": {name: {"title": each.title, "about": each.about} for name, each in cases.items()},
        "systems": {
            name: {"title": each.title, "versions": {name: "1"}, "settings": {}, "unavailable": None}
            for name, each in systems_by_name().items()
        },
        "figures": {name: list(each.figures) for name, each in cases.items()},
        "rows": rows,
        "targets": [
            {
                "text": each.text,
                "subject": each.subject,
                "reference": each.reference,
                "factor": each.factor,
                "at_least": each.at_least,
                "ours": MADE_FOR,
                "reached": 1.0 if each.reference else MADE_FOR,
                "met": "16 KiB" not in each.text,
            }
            for each in targets
        ],
        "broken": [],
        "failed": False,
    }
    return Document.model_validate(content | changes)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The pages that are written to, elsewhere."""
    for page in (README, EXPLANATION):
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / page, tmp_path / page)
    return tmp_path


# The documentation of this repository -------------------------------------------------------------------------------


def test_the_documentation_shows_the_newest_results() -> None:
    """Everything generated is regenerated and compared; without results there must be no figures either."""
    file = newest()
    if file is None:
        for page in (README, EXPLANATION):
            blocks = re.findall(
                r"<!-- generated: \w+ -->(.*?)<!-- end of generated -->", (ROOT / page).read_text(), re.DOTALL
            )
            assert blocks
            assert [each.strip() for each in blocks] == [""] * len(blocks)
        assert "There are no results" in (ROOT / REFERENCE).read_text()
        return
    document = Document.load(file)
    for page, text in pages(document).items():
        assert (ROOT / page).read_text() == text, f"{page} is not what {file.name} says: make bench-publish"


def test_the_pictures_show_the_newest_results(tmp_path: Path) -> None:
    """The numbers in them; how matplotlib draws differs from version to version."""
    file = newest()
    expected = {} if file is None else {each.name: each for each in plots.draw_all(Document.load(file).rows, tmp_path)}
    assert {each.name for each in (ROOT / PICTURES).glob("growth-*.svg")} == set(expected)
    for name, drawn in expected.items():
        found = re.findall(r"grows as n\^\S+?(?=<)", (ROOT / PICTURES / name).read_text())
        assert found == re.findall(r"grows as n\^\S+?(?=<)", drawn.read_text()) != []


def test_what_is_stored_is_fit_to_be_published_and_names_no_folders() -> None:
    for file in (ROOT / RESULTS).glob("*.json"):
        document = Document.load(file)
        assert doubts(document) == []
        assert file.read_text() == stored(document)
        assert file.stem == document.date[:10]


# Publishing ---------------------------------------------------------------------------------------------------------


def test_publishing_writes_everything_once_and_the_same_again(copy: Path) -> None:
    document = made()
    written = publish(document, copy)
    before = {path: (copy / path).read_bytes() for path in written}

    kept = Document.load(copy / RESULTS / "2026-01-02.json")
    assert newest(copy) == copy / RESULTS / "2026-01-02.json"
    assert set(publish(kept, copy)) == set(written)
    assert {path: (copy / path).read_bytes() for path in written} == before
    assert {README, EXPLANATION, REFERENCE} < set(written)


def test_paths_of_the_machine_are_not_kept() -> None:
    text = stored(made(broken=["nchan: /var/tmp/run-1/nginx.log says no; see http://a/b/c, 5/s and a/b"]))

    assert "/srv" not in text
    assert "…/x.log" in text
    assert "nchan: …/nginx.log says no; see http://a/b/c, 5/s and a/b" in text


def test_every_target_is_in_the_summary_with_its_verdict() -> None:
    document = made()
    text = summary(document)

    assert f"{len(document.targets) - 1} of {len(document.targets)} targets are met, 1 missed." in text
    assert text.count("✓ ") + text.count("✓;") == len(document.targets) - 1 + 1  # and once where it is explained
    assert "10,000 idle sessions: memory each, KiB | 5 ±2% |" in text
    assert "≤ 16 ✗" in text


def test_the_readme_has_five_of_the_lines_and_says_where_the_others_are() -> None:
    document = made()
    text = readme_block(document)

    assert len(IN_README) == 5
    assert [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")][2:] == [
        "| " + HEADLINES[each].replace("… ", "the same: ") for each in IN_README
    ]
    assert "demanded" not in text
    assert f"{len(document.targets) - 1} of {len(document.targets)} targets are met, 1 missed: [" in text
    assert "docs/reference/benchmarks.md" in text


def test_the_lines_of_the_summary_are_what_the_cases_measure() -> None:
    cases = cases_by_name()
    known = {(name, figure.name) for name, case in cases.items() for figure in case.figures}
    subjects = {target.subject for case in cases.values() for target in case.targets}

    assert {(each.case, each.figure) for each in HEADLINES} <= known
    assert subjects <= HEADLINES.keys()


def test_what_is_missed_is_listed() -> None:
    assert missed(made()).count("\n- ") == 1
    assert "none was missed" in missed(made(targets=[]))


def test_failures_and_overload_are_shown() -> None:
    fanout = Reference("fanout", "500 subscribers, as fast as it goes", OURS, "deliveries_per_second")
    row = Row(
        fanout.case, fanout.variant, OURS, {fanout.figure: 1.0}, failures=["1 x lost"], flags=["overloaded: 1 of 2"]
    )
    document = made(rows=[row], failed=True)

    assert "| 1 \\* **failed** |" in summary(document)
    assert "something failed" in readme_block(document)
    assert "FAILED 1 x lost; overloaded: 1 of 2" in reference_page(document)


# What is compared ---------------------------------------------------------------------------------------------------

CPU = Reference("own_topic", own_topic.CALM, OURS, "total_cpu_per_delivery")
PEER = replace(CPU, contestant="socketio")


def judged(*rows: Row) -> Document:
    """Results with these rows alone, and what became of the target of a topic each."""
    results = Results()
    results.rows += rows
    (target,) = own_topic.OwnTopic.targets
    found = asdict(judge(target, results))
    del found["target"], found["reference"]
    return made(rows=list(rows), targets=[found | asdict(target)])


def row_of(reference: Reference, total: float, *flags: str, **parts: float) -> Row:
    """A round of one contestant."""
    return Row(reference.case, reference.variant, reference.contestant, {reference.figure: total} | parts, flags=flags)


def test_sums_are_shown_with_what_they_are_made_of() -> None:
    ours = row_of(CPU, 65.4, cpu_per_delivery=49.4, redis_cpu_per_delivery=16.0)
    text = summary(judged(ours, row_of(PEER, 63.6)))

    assert "| 65.4 (49.4 + 16) |" in text
    assert "1.03 × Socket.IO (≤ 0.5) ✗" in text  # noqa: RUF001 - the sign that is printed


def test_nothing_is_divided_by_what_could_not_keep_up() -> None:
    document = judged(row_of(CPU, 65.0), row_of(PEER, 60.0, "overloaded: 1 of 2 deliveries/s"))
    text = summary(document)

    assert "≤ 0.5: no ratio, Socket.IO could not keep up: not judged" in text
    assert "| 60 \\* |" in text
    assert "0 of 1 targets are met, 0 missed, 1 not judged." in text
    assert "socketio could not keep up" in reference_page(document)
    assert "1.08" not in reference_page(document)


def test_rounds_far_apart_are_shown_as_a_range_and_so_are_their_ratios() -> None:
    document = judged(row_of(CPU, 10.0), *(row_of(PEER, each) for each in (25.0, 40.0, 16.0)))

    assert "| 16 … 40 |" in summary(document)
    # The worse end decides: 10 / 16 is more than half.
    assert "0.25 … 0.625 × Socket.IO (≤ 0.5) ✗" in summary(document)  # noqa: RUF001
    assert "16.00 … 40.00" in reference_page(document)
    assert "0.25 … 0.62" in reference_page(document)
    assert "0.25 … 0.625, where at most 0.5 was demanded" in missed(document)


def test_a_peer_that_was_not_measured_has_no_column() -> None:
    assert "|  | this gateway | Socket.IO | demanded |" in summary(judged(row_of(CPU, 10.0), row_of(PEER, 30.0)))


def test_a_full_generator_is_marked() -> None:
    text = summary(judged(row_of(CPU, 10.0, "the generator was the limit: 91 % of its core"), row_of(PEER, 30.0)))

    assert "| 10 † |" in text
    assert "† The generator's core" in text


def test_the_saturated_rate_stands_beside_its_window_and_what_was_joined() -> None:
    rate = Reference("fanout", fanout.SATURATED, OURS, "deliveries_per_second")
    text = summary(made(rows=[row_of(rate, 2.8e6, deliveries_per_read=145.0)], targets=[]))

    assert "256 updates under way: deliveries/s (updates per read) | 2.8 M (145) |" in text


def test_what_is_stored_has_sums_of_what_was_measured() -> None:
    """Stored sums over all processes are those of the parts beside them."""
    for file in (ROOT / RESULTS).glob("*.json"):
        for row in Document.load(file).rows:
            for total, parts in PARTS.items():
                if total in row.values:
                    assert row.values[total] == pytest.approx(sum(row.values.get(each, 0.0) for each in parts))


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (0.0515, "0.0515"), (7.6, "7.6"), (1137.4, "1,137"), (48_388.0, "48.4 k"), (1_777_684.0, "1.78 M")],
)
def test_numbers_have_three_digits(value: float | None, text: str) -> None:
    assert plain(value) == text


# What is not published ----------------------------------------------------------------------------------------------


def test_doubtful_runs_are_told_apart() -> None:
    systems = {"nchan": {"title": "nchan", "versions": {}, "settings": {}, "unavailable": "no nginx"}}

    assert doubts(made()) == []
    assert doubts(made(quick=True)) == ["it was a quick run, to try things"]
    assert doubts(made(failed=True)) == ["something failed in it"]
    assert doubts(made(systems=systems)) == ["nchan was not measured (no nginx)"]
    assert doubts(made(rows=[Row("fanout", "flat", OURS, {})]))[0].startswith("there is nothing of steady, own_topic")


def run(*arguments: str | Path) -> tuple[int, str]:
    outcome = CliRunner().invoke(main, [str(each) for each in arguments])
    return outcome.exit_code, outcome.output


def test_a_doubtful_run_is_published_only_if_one_insists(copy: Path) -> None:
    file = copy / "quick.json"
    file.write_text(stored(made(quick=True)))
    before = (copy / README).read_text()

    code, said = run(file, "--root", copy)
    assert code == BAD_USE
    assert "it was a quick run" in said
    assert (copy / README).read_text() == before
    code, said = run(file, "--root", copy, "--anyway")
    assert code == 0
    assert str(REFERENCE) in said


def test_a_run_without_a_peer_is_published_only_if_one_insists(copy: Path) -> None:
    """A run of chosen systems would take the others out of all tables without a word."""
    document = made()
    file = copy / "few.json"
    file.write_text(stored(document.model_copy(update={"systems": {"nchan": document.systems["nchan"]}})))

    code, said = run(file, "--root", copy)
    assert code == BAD_USE
    assert "gateway was left out; nats was left out; mosquitto was left out" in said


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("not JSON", "Invalid JSON"),
        ("[]", "not the results of a run"),
        ('{"format": 99}', "format: Input should be"),
        (json.dumps({"format": FORMAT}), "Field required, commit: Field required, machine: Field required, …"),
    ],
)
def test_a_file_that_is_something_else_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "file.json"
    file.write_text(content)

    code, said = run(file)
    assert code == BAD_USE
    assert reason in said
    assert "Traceback" not in said


def test_rows_that_the_file_does_not_describe_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_text(stored(made()).replace('"growth": {', '"shrinking": {', 1))

    with pytest.raises(BadResults, match="rows of growth, which it does not describe"):
        Document.load(file)


def test_a_missing_file_and_a_page_without_its_blocks_are_told(copy: Path) -> None:
    code, said = run(copy / "nothing.json")
    assert code == BAD_USE
    assert "`make bench` writes" in said
    (copy / README).write_text("# Nothing\n")
    file = copy / "good.json"
    file.write_text(stored(made()))

    code, said = run(file, "--root", copy)
    assert code == BAD_USE
    assert "README.md has the generated parts []" in said
    assert not (copy / RESULTS).exists()
