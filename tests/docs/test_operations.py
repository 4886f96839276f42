"""What the pages tell operators to type fits what is shipped: addresses, units of systemd, processes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click

from gateway.cli.program import program
from gateway.lazy_commands import LazyGroup

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = sorted(
    [
        *(ROOT / "docs" / "how-to").rglob("*.md"),
        *(ROOT / "docs" / "tutorial").rglob("*.md"),
        ROOT / "deploy" / "README.md",
    ]
)


def lines_with(pattern: str, *, but: str = "(?!)") -> list[str]:
    """List the lines of all pages in which a pattern is found, and not another one."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line}"
        for path in PAGES
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.search(pattern, line) and not re.search(but, line)
    ]


def test_nobody_is_told_to_ask_loopback_where_nodes_listen_elsewhere() -> None:
    """Refused there, a healthy node would be held for dead. Compose maps ports to it; in a pod it is the node's own."""
    example = (ROOT / "deploy" / "systemd" / "gateway.env.example").read_text("utf-8")
    assert "127.0.0.1" not in example
    asked = lines_with(r"(curl|urlopen|ask)\b.*(127\.0\.0\.1|localhost):9\d\d\d/", but=r"on the host|kubectl exec")
    assert asked == []


def test_units_are_named_as_they_are_installed() -> None:
    (unit,) = (ROOT / "deploy" / "systemd").glob("*.service")
    assert unit.name == "gateway@.service"
    assert lines_with(r"systemctl\b.* gateway\b(?!@)") == []


def test_no_process_is_looked_for_by_a_name_that_it_has_not() -> None:
    """A program in Python is called ``python`` by the system, and a machine may have several nodes."""
    assert lines_with(r"\b(pidof|pgrep|pkill|killall)\b") == []


def test_no_command_that_lists_by_itself_is_told_to() -> None:
    """The word would be taken for the name of what to show."""
    admin = program.get_command(click.Context(program), "admin")
    assert isinstance(admin, LazyGroup)
    single = [name for name, command in admin.load().items() if not isinstance(command, click.Group)]
    assert "sessions" in single
    assert lines_with(rf"gateway admin ({'|'.join(single)}) list\b") == []


def test_other_clusters_are_looked_for_where_the_shipped_files_listen() -> None:
    component = (ROOT / "deploy" / "kubernetes" / "components" / "zone" / "kustomization.yaml").read_text("utf-8")
    (port,) = re.findall(r"GATEWAY_ZONE_LISTEN=\S+:(\d+)", component)
    assert (
        lines_with(
            r"wss://[\w.-]+:\d{4}\b.*(zone|join|link)|(zone|join|link).*wss://[\w.-]+:\d{4}\b", but=rf":{port}\b"
        )
        == []
    )


def test_whoever_connects_clusters_is_told_what_links_need() -> None:
    """Without one of these nothing crosses."""
    page = (ROOT / "docs" / "how-to" / "connect-clusters.md").read_text("utf-8")
    needed = ("gateway keys zone", *(f"{each} =" for each in ("zone_listen", "zone_tls_certificate", "zone_tls_ca")))
    assert [each for each in needed if each not in page] == []
    assert "connect-clusters.md#give-the-nodes-what-links-need" in (
        ROOT / "docs" / "how-to" / "join-two-zones.md"
    ).read_text("utf-8")
