"""What is said about releases is true: a version is dated in the changelog when it is released, and not before."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from typing import Final

from gateway import __version__

ROOT: Final = Path(__file__).resolve().parents[2]
NOTHING: Final = "**Nothing has been released yet.**"


def test_the_changelog_dates_versions_and_says_when_there_is_none() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, *rest = re.findall(r"^## (.*)$", text, re.MULTILINE)

    assert first == "Unreleased"
    released = [re.fullmatch(r"(\d+\.\d+\.\d+), (\d{4}-\d\d-\d\d)", each) for each in rest]
    assert None not in released, rest
    days = [date.fromisoformat(each[2]) for each in released if each]
    assert days == sorted(days, reverse=True)
    assert (NOTHING in text) is (not released)
    if released:
        assert released[0] is not None
        assert released[0][1] == __version__


def test_both_clients_and_the_server_have_one_version() -> None:
    folder = ROOT / "clients" / "javascript"
    package, lock = (json.loads((folder / name).read_text("utf-8")) for name in ("package.json", "package-lock.json"))

    assert {package["version"], lock["version"], lock["packages"][""]["version"]} == {__version__}
    assert f'"{__version__}"' in (folder / "src" / "version.js").read_text("utf-8")
    assert f'"session-gateway-client=={__version__}"' in (ROOT / "pyproject.toml").read_text("utf-8")
