"""What is missing for Spark is told before it is started."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from pipeline.errors import NotReady
from pipeline.prerequisites import look_for_java, look_for_master


def java(home: Path, version: str) -> dict[str, str]:
    """A Java that does nothing but tell its version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(home)}


@pytest.mark.parametrize("version", ["17.0.15", "21", "21-ea", "strange"])
def test_a_java_that_will_do(tmp_path: Path, version: str) -> None:
    look_for_java(java(tmp_path, version))


@pytest.mark.parametrize(("version", "told"), [("1.8.0_402", "is Java 8"), ("11.0.2", "is Java 11")])
def test_a_java_that_is_too_old(tmp_path: Path, version: str, told: str) -> None:
    with pytest.raises(NotReady, match=rf"needs Java 17 or newer, and .* {told}; install"):
        look_for_java(java(tmp_path, version))


def test_no_java(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="there is none in PATH; install Java 17"):
        look_for_java({"PATH": str(tmp_path)})
    with pytest.raises(NotReady, match=r"as JAVA_HOME says, cannot be run \(No such file"):
        look_for_java({"JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize("master", ["local[*]", "yarn", "k8s://https://10.0.0.1:6443"])
def test_of_other_masters_nothing_is_asked(master: str) -> None:
    look_for_master(master)


def test_a_master_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        look_for_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    with pytest.raises(NotReady, match=rf"no master of Spark answers at spark://127.0.0.1:{port} \(.*refused"):
        look_for_master(f"spark://127.0.0.1:{port}")


@pytest.mark.parametrize("master", ["spark://", "spark://somewhere", "spark://somewhere:x", "spark://127.0.0.1:99999"])
def test_what_names_no_master(master: str) -> None:
    with pytest.raises(NotReady):
        look_for_master(master)
