"""Spark's JVM, as the command line runs it: what it writes is listened to, and its user is told what nobody else tells.

A JVM that runs Spark writes much that is no news: that a module of Java is young, how to set a level of logging, and
with each query what the workers in Python say of themselves. Its errors come to Python anyway, as exceptions. What
remains are the warnings that ``log4j2.properties`` lets pass and marks, and the reason why it did not even start.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any, Final, TextIO, cast

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from gateway.core.visible import visible
from pipeline.errors import PipelineError

MARK: Final = "pipeline: "
"""What the lines begin with that are meant for the user; see ``log4j2.properties``."""

_LOG: Final = files("pipeline").joinpath("log4j2.properties")

_REMEMBERED: Final = 200
"""Lines that are kept for the case that it does not start: more than a stack trace of Spark."""

_REASONS: Final = (
    re.compile(r"^Exception in thread \"main\" (?:[\w.$]+: )?(.+)"),
    re.compile(r"^((?:Unrecognized|Invalid) .+)"),
    re.compile(r"^Error: (.+)"),
)
"""How the line begins that says why Spark, or Java, did not start; the first kind that is found counts."""


def launch(settings: Mapping[str, str]) -> None:
    """Start the JVM of this process, unless it has one.

    Args:
        settings: of Spark.

    Raises:
        PipelineError: it did not start; the message says why, as far as it told.
    """
    if SparkContext._gateway is not None:  # noqa: SLF001 - there is no other way to know
        return
    conf = SparkConf().setAll(list(settings.items()))
    options = f"{conf.get('spark.driver.extraJavaOptions', '')} -Dlog4j2.configurationFile={_LOG}"
    conf.set("spark.driver.extraJavaOptions", options.strip())
    reading, writing = os.pipe()
    told: deque[str] = deque(maxlen=_REMEMBERED)
    listener = threading.Thread(
        target=listen, args=(os.fdopen(reading, encoding="utf-8", errors="replace"), told), daemon=True, name="jvm"
    )
    listener.start()
    try:
        gateway = launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError:
        os.close(writing)
        listener.join()
        raise PipelineError(f"Spark did not start: {reason_in(told)}") from None
    os.close(writing)
    cast("Any", SparkContext)._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001 - as SparkContext does


def listen(stream: TextIO, told: deque[str]) -> None:
    """Read what the JVM writes, up to its end: pass on what is for the user, and remember the rest for a while."""
    with stream:
        for line in stream:
            if line.startswith(MARK):
                sys.stderr.write(f"{visible(line.rstrip())}\n")
                sys.stderr.flush()
            elif line.strip():
                told.append(line.rstrip())


def reason_in(told: Iterable[str]) -> str:
    """Find why the JVM did not start in what it wrote."""
    lines = list(told)
    for each in _REASONS:
        for line in lines:
            if found := each.match(line):
                return str(found[1])
    return lines[-1] if lines else "its JVM ended without a word"
