"""What has to be there before Spark can start: looked at beforehand, because Spark tells of it late and at length."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pipeline.errors import NotReady

LEAST_JAVA: Final = 17
"""What the classes of Spark 4 are compiled for."""

_JAVA_ANSWERS_WITHIN: Final = 30.0
"""Seconds; it takes a tenth of one, unless the machine is very busy."""

_MASTER_ANSWERS_WITHIN: Final = 5.0
"""Seconds to connect to a master of Spark. Spark itself tries for a minute, without a word."""

_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')
"""How every Java tells its version: up to 8 as 1.8, from 9 on as it is."""

_MASTERS: Final = re.compile(r"spark://(.*)")


def look_for_java(environment: Mapping[str, str] | None = None) -> None:
    """See that Spark will find a Java that it can run in.

    Args:
        environment: environment variables; by default those of this process.

    Raises:
        NotReady: there is none, or it is too old.
    """
    environment = os.environ if environment is None else environment
    remedy = f"install Java {LEAST_JAVA} or newer, or name it in JAVA_HOME"
    home = environment.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    if java is None:
        raise NotReady(f"Spark needs Java, and there is none in PATH; {remedy}")
    try:
        told = subprocess.run(  # noqa: S603 - it is what Spark will run
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_ANSWERS_WITHIN, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        where = f"{java}, as JAVA_HOME says" if home else java
        why = error.strerror if isinstance(error, OSError) else "it does not answer"
        raise NotReady(f"Spark needs Java, and {where}, cannot be run ({why}); {remedy}") from None
    found = _VERSION.search(told)
    if found is None:
        return  # One that speaks otherwise may still do.
    first, second = int(found[1]), int(found[2] or 0)
    version = second if first == 1 else first
    if version < LEAST_JAVA:
        raise NotReady(f"Spark needs Java {LEAST_JAVA} or newer, and {java} is Java {version}; {remedy}")


def look_for_master(master: str) -> None:
    """See that a standalone master can be reached; other masters are Spark's own affair.

    Args:
        master: as Spark knows it; ``spark://`` names one host and port, or several with commas between them.

    Raises:
        NotReady: none of them can.
    """
    named = _MASTERS.fullmatch(master)
    if named is None:
        return
    wrong = []
    for place in named[1].split(","):
        host, colon, port = place.rpartition(":")
        if not colon or not port.isdecimal():
            raise NotReady(f"{master} names no master of Spark: give spark://<host>:<port>, such as spark://spark:7077")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _MASTER_ANSWERS_WITHIN).close()
        except (OSError, OverflowError) as error:
            wrong.append(str(error))
        else:
            return
    raise NotReady(f"no master of Spark answers at {master} ({wrong[0]}); start it, or name another one")
