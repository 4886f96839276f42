"""What the image is made of: pinned by hash and digest, in step with what the project needs, and said in an SBOM."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from scripts import images, requirements
from scripts.images import Image, ImagesError
from tests.deploy.promtool import ROOT
from tests.support.times import scaled

PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
CLIENT: Final = tomllib.loads((ROOT / "clients" / "python" / "pyproject.toml").read_text("utf-8"))
OF_BUILDING: Final = {"pip", "hatchling"}

PIN: Final = re.compile(r"^([\w.-]+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)$")


def pins(path: Path) -> dict[str, str]:
    """Read a file of requirements: the version of each; every line must be one with hashes."""
    text = re.sub(r" \\\n +", " ", (ROOT / path).read_text("utf-8"))
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = PIN.fullmatch(line)
        assert match is not None, f"{path}: {line[:60]!r} is no version with hashes"
        found[canonicalize_name(match[1])] = match[2]
    return found


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


def needed(wanted: list[str]) -> set[str]:
    """All that these requirements need, by what is installed here, on the Python of the image."""
    environment: dict[str, str] = {name: str(value) for name, value in default_environment().items()}
    environment["python_version"] = requirements.PYTHON
    environment["python_full_version"] = f"{requirements.PYTHON}.0"
    environment["sys_platform"] = "linux"
    found: set[tuple[str, str]] = set()
    waiting = [Requirement(each) for each in wanted]
    while waiting:
        one = waiting.pop()
        for extra in ("", *one.extras):
            place = (canonicalize_name(one.name), extra)
            if place in found:
                continue
            found.add(place)
            for text in distribution(one.name).requires or ():
                each = Requirement(text)
                if each.marker is None or each.marker.evaluate(dict(environment, extra=extra)):
                    waiting.append(each)
    return {name for name, _ in found}


def test_every_pinned_version_installs_on_the_oldest_python_that_is_promised() -> None:
    """Pip refuses a version that wants a newer one, such as 3.11.5 where Debian 12 has 3.11.2."""
    oldest = f"{PROJECT['project']['requires-python'].removeprefix('>=')}.0"
    refused: dict[str, str] = {}
    for name, version in constraints().items():
        try:
            one = distribution(name)
        except PackageNotFoundError:
            continue  # it is for another system
        wanted = one.metadata["Requires-Python"]
        if one.version == version and wanted and not SpecifierSet(wanted).contains(oldest):
            refused[name] = wanted
    assert refused == {}


def test_the_image_installs_what_the_project_needs_in_the_versions_that_are_tested() -> None:
    """If it fails: `make requirements`."""
    found, known = pins(requirements.RUNTIME), constraints()
    asked = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["otel"]]
    linux = [each for each in asked if (marker := Requirement(each).marker) is None or marker.evaluate()]
    linux = [each for each in linux if Requirement(each).name != requirements.CLIENT]
    linux += CLIENT["project"]["dependencies"]
    assert found.keys() == needed(linux)
    assert found == {name: known[name] for name in found}
    for each in map(Requirement, linux):
        assert each.specifier.contains(found[canonicalize_name(each.name)]), each


def test_it_is_built_with_what_the_project_says_in_the_versions_that_are_tested() -> None:
    """If it fails: `make requirements`."""
    found, known = pins(requirements.BUILD), constraints()
    assert {Requirement(each).name for each in PROJECT["build-system"]["requires"]} == OF_BUILDING - {"pip"}
    assert found.keys() >= OF_BUILDING
    assert found == {name: known[name] for name in found}


@pytest.mark.parametrize("path", [requirements.RUNTIME, requirements.BUILD], ids=lambda path: path.name)
def test_no_address_of_an_index_is_in_the_pins(path: Path) -> None:
    text = (ROOT / path).read_text("utf-8")
    assert "://" not in text
    assert re.findall(r"(?m)^\s*-(?!-hash=)", text) == []


def test_a_pin_without_a_hash_is_found(tmp_path: Path) -> None:
    """The reader of this test can fail, too."""
    for line in ("aiohttp==3.0", "aiohttp>=3 --hash=sha256:" + "0" * 64, "--index-url https://example.com/simple"):
        (tmp_path / "file").write_text(line)
        with pytest.raises(AssertionError, match="no version with hashes"):
            pins(tmp_path / "file")


def test_the_dockerfile_installs_nothing_else() -> None:
    text = (ROOT / requirements.FOLDER / "Dockerfile").read_text("utf-8")
    commands = re.sub(r"(?m)^#.*\n", "", text).replace("\\\n", " ").replace("\n", " && ").split("&&")
    installs = [each for each in commands if "/bin/pip " in each]
    assert len(installs) == 4
    for options in installs:
        assert "--require-hashes" in options or "--no-index" in options
        assert "--no-deps" in options
    assert "apt" not in text
    assert re.findall(r"(?m)^# *(?:syntax|escape)=", text) == [], "a frontend of BuildKit is an image, too"
    base = next(image for image in images.read(ROOT) if image.key == "python")
    assert base.tag.startswith(f"{requirements.PYTHON}.")


# --- Images of others -------------------------------------------------------------------------------------------------


def test_every_image_is_named_by_its_digest() -> None:
    listed = images.read(ROOT)
    assert all(each.digest for each in listed)
    assert list(images.named_otherwise(ROOT, listed)) == []
    named = [
        name
        for path in images.NAMED_IN
        for name in re.findall(r"(?m)^(?:FROM|\s+image:) +(\S+)", (ROOT / path).read_text("utf-8"))
        if name != "session-gateway"
    ]
    assert {*named} == {each.reference for each in listed}


def test_no_other_file_of_deploy_names_an_image_of_others() -> None:
    told = {ROOT / path for path in (*images.NAMED_IN, images.LIST)}
    for path in (ROOT / "deploy").rglob("*"):
        if path.is_file() and path not in told and path.suffix in {".yaml", ".yml"}:
            assert re.findall(r"(?m)^\s+image: +(?!session-gateway)\S+", path.read_text("utf-8")) == [], path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that name images, to be changed."""
    for path in (*images.NAMED_IN, images.LIST):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text((ROOT / path).read_text("utf-8"))
    return tmp_path


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tool that answers what this file says."""
    answer = tmp_path / "answer"
    tools = tmp_path / "tools"
    tools.mkdir()
    tool = tools / "crane"
    tool.write_text(f'#!/bin/sh\necho "$2" >> {tmp_path}/asked\ncat {answer}\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    return answer


def test_pins_are_taken_from_the_registry_and_put_everywhere(checkout: Path, registry: Path) -> None:
    digest = "sha256:" + "5" * 64
    registry.write_text(f"{digest}\n")
    assert images.main(["check"], checkout) == 1
    assert images.main(["pin"], checkout) == 0
    listed = images.read(checkout)
    assert {each.digest for each in listed} == {digest}
    assert {each.known_from for each in listed} == {""}
    assert [each.tagged for each in listed] == [each.tagged for each in images.read(ROOT)]
    assert {*(checkout / "asked").read_text().split()} == {each.tagged for each in listed}
    assert images.main(["check"], checkout) == 0
    for path in images.NAMED_IN:
        text = (checkout / path).read_text()
        assert re.findall(r"sha256:[0-9a-f]{64}", text) == [digest] * text.count("sha256:")


@pytest.mark.parametrize("answer", ["", "sha256:123", "latest", "sha256:" + "5" * 64 + "\nmore"])
def test_an_answer_that_is_no_digest_changes_nothing(
    checkout: Path, registry: Path, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.write_text(answer)
    before = (checkout / images.LIST).read_text()
    assert images.main(["pin"], checkout) == 1
    assert (checkout / images.LIST).read_text() == before
    assert "crane digest" in capsys.readouterr().err


def test_without_a_tool_it_says_which_to_install(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert images.main(["check"], checkout) == 1
    assert "skopeo" in capsys.readouterr().err


def test_a_missing_digest_is_told_and_a_false_one_refused(checkout: Path, registry: Path) -> None:
    registry.write_text(images.read(checkout)[0].digest)
    text = (checkout / images.LIST).read_text()
    (checkout / images.LIST).write_text(re.sub(r'(?m)^digest = ".*"$', 'digest = ""', text))
    listed = images.read(checkout)
    images.write(checkout, listed)
    assert [each for each in images.complaints(checkout, listed) if "has no digest" not in each] == []
    (checkout / images.LIST).write_text(re.sub(r'(?m)^digest = ".*"$', 'digest = "sha256:12"', text, count=1))
    with pytest.raises(ImagesError, match=r"\[python\]"):
        images.read(checkout)


def test_names_are_told_from_others_that_hold_them() -> None:
    image = Image("redis", "redis", "7.4", "sha256:" + "1" * 64)
    text = "image: redis:7.2-bookworm\nurl: redis://redis:6379/0\nimage: my/redis:7\nimage: redis:7@sha256:" + "2" * 64
    found = image.pattern.findall(text)
    assert found == ["redis:7.2-bookworm", "redis:7@sha256:" + "2" * 64]


# --- SBOM -------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_sbom_names_everything_that_is_installed_with_its_hashes(tmp_path: Path) -> None:
    file = tmp_path / "sbom.json"
    recipe = re.search(r"(?ms)^sbom:.*?\n(?=\n)", (ROOT / "Makefile").read_text("utf-8"))
    assert recipe is not None
    command = re.search(r"(?s)\$\(BIN\)/cyclonedx-py (.*?requirements\.txt)", recipe[0])
    assert command is not None
    arguments = command[1].replace("\\\n", " ").replace("$(SBOM)", str(file)).split()
    program = Path(sys.executable).with_name("cyclonedx-py")
    # It validates what it writes against the schema of CycloneDX, and fails if that does not hold.
    subprocess.run([program, *arguments], cwd=ROOT, check=True, capture_output=True, timeout=scaled(60))
    told: dict[str, Any] = json.loads(file.read_text("utf-8"))
    assert told["bomFormat"] == "CycloneDX"
    assert told["metadata"]["component"]["name"] == "session-gateway"
    found = {canonicalize_name(each["name"]): each["version"] for each in told["components"]}
    assert found == pins(requirements.RUNTIME)
    for each in told["components"]:
        assert each["purl"] == f"pkg:pypi/{each['name'].lower()}@{each['version']}"
        assert any(reference.get("hashes") for reference in each["externalReferences"]), each["name"]
