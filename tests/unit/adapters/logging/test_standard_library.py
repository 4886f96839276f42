import io
import json
import logging
import warnings
from collections.abc import Iterator

import pytest

from gateway.adapters.logging import StructuredEventLog, capture_standard_library
from gateway.adapters.logging.standard_library import _Bridge


@pytest.fixture
def captured() -> Iterator[tuple[io.StringIO, StructuredEventLog]]:
    stream = io.StringIO()
    log = StructuredEventLog(node="n1", stream=stream)
    restore = capture_standard_library(log)
    yield stream, log
    restore()
    log.close()


def test_what_libraries_log_becomes_events(captured: tuple[io.StringIO, StructuredEventLog]) -> None:
    stream, log = captured
    logging.getLogger("redis").info("chatter")
    logging.getLogger("asyncio").warning("slow %s", "callback")
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("aiohttp.server").exception("handler failed")
    log.close()

    lines = [json.loads(line) for line in stream.getvalue().splitlines()]

    assert [(line["event"], line["logger"]) for line in lines] == [
        ("library_warned", "asyncio"),
        ("library_failed", "aiohttp.server"),
    ]
    assert lines[0]["message"] == "slow callback"
    assert "ValueError: broken" in lines[1]["message"]


def test_a_malformed_record_hurts_nobody(captured: tuple[io.StringIO, StructuredEventLog]) -> None:
    stream, log = captured
    bridge = next(handler for handler in logging.getLogger().handlers if isinstance(handler, _Bridge))

    # Not through a logger: the test runner's own handlers raise on such a record.
    bridge.handle(logging.LogRecord("odd", logging.ERROR, "file", 1, "%d", ("no number",), None))
    log.close()

    assert json.loads(stream.getvalue())["message"] == "%d"


def test_everything_is_put_back() -> None:
    root = logging.getLogger()
    before = (root.handlers[:], root.level, warnings.showwarning)
    log = StructuredEventLog(node="n1", stream=io.StringIO())

    capture_standard_library(log)()

    assert (root.handlers, root.level, warnings.showwarning) == before
    log.close()
