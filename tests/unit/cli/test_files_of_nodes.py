"""Files that a node reads when it starts: ``check-config`` refuses what ``serve`` refuses, and names the setting."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.unit.cli.conftest import Run

DEV = ("--dev", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """Certificate and key of a node in one file."""
    authority = Authority(tmp_path)
    (tmp_path / "garbage.pem").write_text("nothing of use\n", "ascii")
    return authority.issue("good", "n1")


BAD = {
    "certificate is garbage": ({"tls_certificate": "garbage.pem"}, "tls_certificate", "holds no certificate in PEM"),
    "certificate is missing": (
        {"tls_certificate": "absent"},
        "tls_certificate",
        "the certificate cannot be read (No such",
    ),
    "key is missing": (
        {"tls_certificate": "good.pem", "tls_key": "absent"},
        "tls_key",
        "the key cannot be read (No such",
    ),
    "client authority is missing": (
        {"tls_certificate": "good.pem", "tls_client_ca": "absent"},
        "tls_client_ca",
        "holds no certificates of authorities (No such",
    ),
    "admin certificate is garbage, and its authority missing": (
        {"admin_tls_certificate": "garbage.pem", "admin_tls_client_ca": "absent"},
        "admin_tls_certificate",
        "holds no certificate in PEM",
    ),
    "authority of nodes is missing": (
        {"admin_tls_ca": "absent"},
        "admin_tls_ca",
        "holds no certificates of authorities",
    ),
    "authority of nodes is garbage": (
        {"admin_tls_ca": "garbage.pem"},
        "admin_tls_ca",
        "holds no certificates of authorities",
    ),
    "certificate of links is garbage": (
        {"link": "127.0.0.1:0", "link_tls_certificate": "garbage.pem", "link_tls_ca": "authority.pem"},
        "link_tls_certificate",
        "holds no certificate in PEM",
    ),
    "authority of links is missing": (
        {"link": "127.0.0.1:0", "link_tls_certificate": "good.pem", "link_tls_ca": "absent"},
        "link_tls_ca",
        "holds no certificates of authorities",
    ),
    "certificate of zones is garbage, and the authority missing": (
        {"zone_tls_certificate": "garbage.pem", "zone_tls_ca": "absent"},
        "zone_tls_certificate",
        "holds no certificate in PEM",
    ),
    "authority of zones is missing": (
        {"zone_tls_certificate": "good.pem", "zone_tls_ca": "absent"},
        "zone_tls_ca",
        "holds no certificates of authorities",
    ),
    "key of principals is missing": (
        {"journal": "true", "journal_principals": "hashed", "journal_principals_key_file": "absent"},
        "journal_principals_key_file",
        "absent cannot be read",
    ),
    "no library for traces": ({"traces": "true"}, "traces", "OpenTelemetry is not installed"),
}


def given(settings: dict[str, str], folder: Path) -> Iterator[str]:
    """The flags of settings; of files, the path."""
    for name, value in settings.items():
        flag = f"--{name.replace('_', '-')}"
        if value == "true":
            yield flag
        else:
            is_file = value == "absent" or value.endswith(".pem")
            yield from (flag, str(folder / value) if is_file else value)


@pytest.mark.usefixtures("good")
@pytest.mark.parametrize("command", ["check-config", "serve"])
@pytest.mark.parametrize("what", BAD)
def test_what_a_node_cannot_use_is_told_by_the_setting_that_names_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, command: str
) -> None:
    settings, name, complaint = BAD[what]
    if name == "traces":
        monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)

    result = run(command, *DEV, "--node", "n1", *given(settings, tmp_path))

    assert result.code == 2
    (error,) = (line for line in result.err.splitlines() if line.startswith("gateway: error: "))
    place = name if command == "serve" else f"--{name.replace('_', '-')}"
    assert error.startswith(f"gateway: error: {place}: ")
    assert complaint in error
    assert "; " in error, "it says what to do"
    assert "Errno" not in error


@pytest.mark.usefixtures("good")
def test_everything_that_is_wrong_with_files_is_told_at_once(run: Run, tmp_path: Path) -> None:
    settings = {"tls_certificate": "absent", "admin_tls_certificate": "garbage.pem", "admin_tls_ca": "absent"}

    result = run("check-config", *DEV, "--node", "n1", *given(settings, tmp_path))

    assert [line.split(": ")[2] for line in result.err.splitlines()] == [
        f"--{name.replace('_', '-')}" for name in settings
    ]


@pytest.mark.usefixtures("good")
def test_files_that_can_be_used_are_fit(run: Run, tmp_path: Path) -> None:
    settings = {
        **{f"{port}tls_certificate": "good.pem" for port in ("", "admin_", "zone_")},
        **{f"{port}tls_client_ca": "authority.pem" for port in ("", "admin_")},
        "zone_tls_ca": "authority.pem",
        "admin_tls_ca": "authority.pem",
        "traces": "true",
    }

    result = run("check-config", *DEV, "--node", "n1", *given(settings, tmp_path))

    assert (result.code, result.out.splitlines()[-1]) == (0, "The configuration is fit to run.")
