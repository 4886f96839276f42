"""Who publishes, sends and reads by HTTP, without a session, and repeats each call until it is answered (P5).

Publishes and sends have a key, by which a call that is repeated is not executed again. What they publish is among what
subscribers and readers check, and what they send among what consumers check: a call that was executed twice, or not at
all, is a sequence that is broken or a message that is missing. What is answered is checked here: values come in the
order of their topics, each once, and whoever reads finds what it was confirmed before, whichever node it asks (P6).
"""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import orjson
from locust import User, task
from locust.env import Environment
from locust.runners import LocalRunner, WorkerRunner

from loadtests.cluster import QUEUE
from loadtests.credentials import principal, secret
from loadtests.figures import CALL_PUBLISH, CALL_READ, CALL_SEND
from loadtests.greenlets import sleep
from loadtests.pacing import Pacing
from loadtests.payload import Sample, encode, wall_clock
from loadtests.recorder import Recorder, Watching

CALL_SECONDS: Final = 10.0
"""How long one call may take before it is made again."""

AGAIN_SECONDS: Final = 0.2
"""Pause before a call is repeated of whose answer nobody knows; ``Retry-After`` is heeded where there is one."""

TRY_AGAIN: Final = frozenset({429, 502, 503, 504})
"""Statuses after which the same call is made again."""

PATHS: Final[Mapping[str, str]] = {CALL_PUBLISH: "/v1/publish", CALL_SEND: "/v1/send", CALL_READ: "/v1/values"}

READ_EVERY: Final = 4
"""Publishes after which all that back ends and publishers have published is read, page by page."""

PAGE: Final = 20
"""Values in a page; few, so that there are several."""


class CallFailed(Exception):
    """A call was refused for good."""


class CallerUser(User):
    """A back end that publishes to a topic of its own, sends to the queue and reads, on an absolute schedule."""

    fixed_count = 1
    rate = 2.0
    """Publishes per second, and as many sends; as ``--publish-rate``."""
    value_bytes = 100
    """Size of a value; as ``--value-bytes``."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        runner = environment.runner
        worker = runner.worker_index if isinstance(runner, LocalRunner | WorkerRunner) else 0
        self.recorder = Recorder.of(environment)
        self._name = f"w{worker}-{next(self.recorder.numbers)}"
        self._url = urlsplit(str(self.host))
        self._connection: http.client.HTTPConnection | None = None
        proof = base64.b64encode(f"{principal()}:{secret() or ''}".encode()).decode()
        self._headers = {"Authorization": f"Basic {proof}", "Content-Type": "application/json"}
        self._version = 0

    @task
    def live(self) -> None:
        """Call until the test ends."""
        source = f"{time.time_ns():x}-{self._name}"
        pacing = Pacing(wall_clock(), 1 / self.rate)
        watching = Watching(self.recorder)
        watching.publishing()
        try:
            while not self.recorder.stopping:
                sleep(max(0.0, pacing.next_due - wall_clock()))
                first = pacing.count + 1
                for sequence, due in enumerate(pacing.due(wall_clock()), first):
                    self._publish(source, sequence, due)
                    self._send(source, sequence, due)
                    if sequence % READ_EVERY == 0:
                        self._read()
        finally:
            watching.finish(time.monotonic())
            self._hang_up()

    def _publish(self, source: str, sequence: int, due: float) -> None:
        topic = f"load/{self._name}"
        value = encode(Sample(source, sequence, due), size=self.value_bytes)
        told = self._call(CALL_PUBLISH, f"{source}-{sequence}", {"topic": topic, "value": orjson.Fragment(value)}, due)
        if told is None:
            return
        self.recorder.tally.published += 1
        if told.get("topic") != topic or not isinstance(told.get("event"), str):
            self.recorder.violated(f"a call that published to {topic} was answered {json.dumps(told)}")
        elif not isinstance(version := told.get("version"), int) or version <= self._version:
            self.recorder.violated(f"{topic}: version {told.get('version')} came after {self._version}")
        else:
            self._version = version

    def _send(self, source: str, sequence: int, due: float) -> None:
        # A source of its own, as each message is counted by itself.
        value = encode(Sample(f"{source}-queue", sequence, due), size=self.value_bytes)
        content = {"queue": QUEUE, "value": orjson.Fragment(value)}
        told = self._call(CALL_SEND, f"{source}-{sequence}-queue", content, due)
        if told is None:
            return
        self.recorder.tally.sent += 1
        if told.get("queue") != QUEUE or not isinstance(told.get("message"), int):
            self.recorder.violated(f"a call that sent to {QUEUE} was answered {json.dumps(told)}")

    def _read(self) -> None:
        """Read all values, page by page."""
        own, known = f"load/{self._name}", self._version
        query: dict[str, object] = {"selector": "load/*", "limit": PAGE}
        last, seen = "", 0
        while True:
            told = self._ask_until_answered(CALL_READ, b"", self._headers, wall_clock(), query=urlencode(query))
            if told is None:
                return
            for each in told["values"]:
                if each["topic"] <= last:
                    self.recorder.violated(f"of the values {each['topic']} came behind {last}")
                last = each["topic"]
                seen = each["version"] if last == own else seen
            if told.get("cursor") is None:
                break
            query["cursor"] = told["cursor"]
        if seen < known:
            self.recorder.violated(f"{own} was read with version {seen}, and {known} was confirmed before")

    def _call(self, name: str, key: str, content: object, due: float) -> dict[str, Any] | None:
        """Make a call with a key until it is answered; returns the answer, or None if the test ends meanwhile."""
        headers = {**self._headers, "Idempotency-Key": key}
        return self._ask_until_answered(name, orjson.dumps(content), headers, due)

    def _ask_until_answered(
        self, name: str, body: bytes, headers: Mapping[str, str], due: float, *, query: str = ""
    ) -> dict[str, Any] | None:
        """Make a call until it is answered; returns the answer, or None if the test ends meanwhile."""
        for attempt in itertools.count():
            if self.recorder.stopping and attempt:
                return None
            try:
                status, answer, wait = self._ask(f"{PATHS[name]}?{query}" if query else PATHS[name], body, headers)
            except (OSError, http.client.HTTPException):
                self._hang_up()
                sleep(AGAIN_SECONDS)
                continue
            if status in TRY_AGAIN:
                sleep(wait)
                continue
            if status != http.client.OK:
                self.recorder.request(name, wall_clock() - due, CallFailed(f"{status}: {answer!r}"))
                return None
            self.recorder.request(name, wall_clock() - due, size=len(answer))
            told: dict[str, Any] = orjson.loads(answer)
            return None if self.recorder.stopping else told
        raise AssertionError("counting has no end")

    def _ask(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes, float]:
        """Make a call once; returns status, body, and after how many seconds to make it again."""
        if self._connection is None:
            secure = self._url.scheme in {"wss", "https"}
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            self._connection = kind(self._url.netloc, timeout=CALL_SECONDS)
        self._connection.request("POST" if body else "GET", path, body or None, dict(headers))
        answer = self._connection.getresponse()
        content = answer.read()
        return answer.status, content, float(answer.headers.get("Retry-After", AGAIN_SECONDS))

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
