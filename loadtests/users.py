"""Who uses the gateway: subscribers, publishers, and clients on a bad network."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random, SystemRandom
from typing import Final

from locust import User, task
from locust.env import Environment
from locust.runners import LocalRunner, WorkerRunner

from gateway.core.client.errors import ConnectFailed, GatewayError, SessionEnded
from gateway.core.client.options import ClientOptions
from gateway.core.client.request_table import UNNUMBERED
from gateway.core.client.urls import check_urls
from gateway.core.wire.packets import Publish, Reply, Subscribe
from loadtests.cluster import SELECTOR
from loadtests.credentials import principal, secret
from loadtests.figures import CONNECT, PUBLISH
from loadtests.greenlets import sleep
from loadtests.pacing import Pacing
from loadtests.payload import Sample, encode, wall_clock
from loadtests.recorder import Recorder, Watching
from loadtests.shell.session import CLIENT_NAME, GatewaySession

SUBSCRIBE: Final = "subscribe"
SUBSCRIBE_SECONDS: Final = 30.0
"""How long a subscription may take: longer than a node needs to be found dead and its sessions to move."""

OPEN_AGAIN_SECONDS: Final = 1.0
"""Pause before a user whose session could not be opened, or was lost, begins anew: people do not spin."""

CLOSE_SECONDS: Final = 2.0
"""How long the end of a session may take at the end of the test; what is left ends with its window."""


class GatewayUser(User):
    """Somebody with a session at the gateway; what they do with it is up to subclasses.

    Attributes:
        recorder: counts what happens.
        session: the present one.
        watching: sees what happens to it.
    """

    abstract = True

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.recorder = Recorder.of(environment)
        self.random = Random(SystemRandom().random())
        self.session: GatewaySession | None = None
        self.watching: Watching | None = None

    @task
    def live(self) -> None:
        """Open a session and use it until it is lost; locust then calls this again."""
        session, watching = self._open()
        try:
            self.use(session, watching)
        except (GatewayError, TimeoutError) as error:
            self.recorder.request(self.purpose, None, error)
        finally:
            self._leave()
        sleep(OPEN_AGAIN_SECONDS)

    @property
    def purpose(self) -> str:
        """Under which name it counts if the session cannot be used."""
        return SUBSCRIBE

    def use(self, session: GatewaySession, watching: Watching) -> None:
        """Do something with a session until it is lost."""
        raise NotImplementedError

    def due(self, session: GatewaySession, source: str, rate: float) -> Iterator[list[Sample]]:
        """Wait for what is due on an absolute schedule until a session is lost, also while it recovers.

        Args:
            session: which.
            source: of the samples, new for each session: their sequence begins at 1.
            rate: samples per second.

        Yields:
            What is due together.
        """
        interval = 1 / rate
        # At a random moment, so that those of one kind do not march in step.
        pacing = Pacing(wall_clock() + self.random.random() * interval, interval)
        while not session.wait_ended(max(0.0, pacing.next_due - wall_clock())):
            first = pacing.count + 1
            yield [Sample(source, sequence, due) for sequence, due in enumerate(pacing.due(wall_clock()), first)]

    def new_source(self) -> str:
        """Draw a source of samples that nobody else has."""
        return f"{self.random.getrandbits(48):012x}"

    def _open(self) -> tuple[GatewaySession, Watching]:
        options = ClientOptions(
            urls=check_urls(str(self.host)),
            principal=principal(),
            secret=secret(),
            client=CLIENT_NAME,
        )
        while True:
            watching = Watching(self.recorder)
            session = GatewaySession(options, watching, random=self.random)
            began = time.monotonic()
            try:
                session.open()
            except BaseException as error:
                watching.finish(time.monotonic())
                if not isinstance(error, ConnectFailed):
                    raise
                self.recorder.request(CONNECT, time.monotonic() - began, error)
                sleep(OPEN_AGAIN_SECONDS)
                continue
            self.recorder.sessions.add(session)
            self.session, self.watching = session, watching
            return session, watching

    def _leave(self) -> None:
        session, watching = self.session, self.watching
        self.session = self.watching = None
        if watching is not None:
            watching.finish(time.monotonic())
        if session is not None:
            self.recorder.sessions.discard(session)
            session.close(CLOSE_SECONDS)


class SubscriberUser(GatewayUser):
    """Selects everything that is published, and checks and measures whatever comes."""

    weight = 1

    def use(self, session: GatewaySession, watching: Watching) -> None:
        """Subscribe and listen."""
        watching.subscribed()
        began = time.monotonic()
        session.request(Subscribe(UNNUMBERED, SELECTOR), SUBSCRIBE_SECONDS)
        self.recorder.request(SUBSCRIBE, time.monotonic() - began)
        self.listen(session)

    def listen(self, session: GatewaySession) -> None:
        """Listen until the session is lost."""
        session.wait_ended()


class FlappingUser(SubscriberUser):
    """A subscriber on a bad network: its connection is cut now and again, at random moments."""

    fixed_count = 1
    cut_every = 10.0
    """Seconds from one cut to the next, on average; set by ``--cut-every``."""

    def listen(self, session: GatewaySession) -> None:
        """Cut the connection again and again."""
        while not session.wait_ended(self.random.expovariate(1 / self.cut_every)):
            session.cut()


class PublisherUser(GatewayUser):
    """Publishes to a topic of its own, on an absolute schedule, and does not wait for receipts before it goes on."""

    fixed_count = 1
    rate = 2.0
    """Publishes per second; set by ``--publish-rate``."""
    value_bytes = 100
    """Size of a value; set by ``--value-bytes``."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        runner = environment.runner
        worker = runner.worker_index if isinstance(runner, LocalRunner | WorkerRunner) else 0
        self._topic = f"load/w{worker}-{next(self.recorder.numbers)}"

    @property
    def purpose(self) -> str:
        """See ``GatewayUser``."""
        return PUBLISH

    def use(self, session: GatewaySession, watching: Watching) -> None:
        """Publish what is due, also while the session recovers: it is sent as soon as it can be."""
        watching.publishing()
        for samples in self.due(session, self.new_source(), self.rate):
            for each in samples:
                value = encode(each, size=self.value_bytes)
                receipt = _Receipt(self.recorder, watching, each.sequence, each.due)
                session.ask(Publish(UNNUMBERED, self._topic, value), receipt)


class _Receipt:
    """Waits for the answer to one publish, without a greenlet of its own; an ``Answer`` of the shell."""

    __slots__ = ("_done", "_due", "_recorder", "_sequence", "_watching")

    def __init__(self, recorder: Recorder, watching: Watching, sequence: int, due: float) -> None:
        self._recorder = recorder
        self._watching = watching
        self._sequence = sequence
        self._due = due
        self._done = False

    def done(self) -> bool:
        return self._done

    def set_result(self, reply: Reply, /) -> None:
        self._done = True
        self._watching.publication.confirmed(self._sequence, reply.version)
        if not self._recorder.stopping:
            self._recorder.tally.published += 1
        self._recorder.request(PUBLISH, wall_clock() - self._due)

    def set_exception(self, error: Exception, /) -> None:
        self._done = True
        self._watching.publication.disturbed()
        if not isinstance(error, SessionEnded) or not self._recorder.stopping:
            self._recorder.request(PUBLISH, wall_clock() - self._due, error)
