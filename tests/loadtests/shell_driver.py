"""A session of the load generator in a process of its own, driven by lines: gevent's patches stay in here.

    python shell_driver.py URL

Reads ``subscribe SELECTOR``, ``publish TOPIC VALUE``, ``cut`` and ``close`` from its standard input, and writes what
happens to its standard output, one JSON object a line.
"""

from __future__ import annotations

from gevent import monkey  # type: ignore[import-untyped]

monkey.patch_all()

import sys  # noqa: E402 - after patching
from random import Random  # noqa: E402
from typing import Any  # noqa: E402

import orjson  # noqa: E402
from gevent.fileobject import FileObjectThread  # type: ignore[import-untyped] # noqa: E402

from gateway.core.client.endings import Ending  # noqa: E402
from gateway.core.client.errors import ConnectFailed, SessionEnded  # noqa: E402
from gateway.core.client.options import ClientOptions  # noqa: E402
from gateway.core.client.request_table import UNNUMBERED  # noqa: E402
from gateway.core.client.types import Notice, Recovery  # noqa: E402
from gateway.core.client.urls import check_urls  # noqa: E402
from gateway.core.wire.exchange_packets import Question  # noqa: E402
from gateway.core.wire.packets import Publish, Reply, Subscribe, Update, Welcome  # noqa: E402
from gateway.core.wire.queue_packets import Message  # noqa: E402
from loadtests.shell.session import CLIENT_NAME, GatewaySession  # noqa: E402


def tell(event: str, **facts: Any) -> None:
    sys.stdout.write(orjson.dumps({"event": event, **facts}).decode() + "\n")
    sys.stdout.flush()


class Teller:
    """An ``Observer``, and where replies go."""

    def opened(self, welcome: Welcome, seconds: float) -> None:
        tell("opened", session=welcome.session, node=welcome.node, took=seconds >= 0)

    def recovered(self, recovery: Recovery) -> None:
        tell("recovered", outcome=recovery.outcome, resent=recovery.resent, cause=recovery.cause)

    def updated(self, update: Update, now: float) -> None:
        tell("updated", topic=update.topic, version=update.version, value=update.value)

    def given(self, question: Question) -> None:
        raise AssertionError(f"nobody handles {question.path}")

    def received(self, message: Message) -> None:
        tell("received", message=message.message, redelivered=message.redelivered)

    def noticed(self, notice: Notice) -> None:
        tell("noticed", code=notice.code)

    def violated(self, message: str) -> None:
        tell("violated", message=message)

    def attempt_failed(self, ending: Ending) -> None:
        tell("attempt_failed", message=ending.message)

    def ended(self, error: SessionEnded, gap_seconds: float) -> None:
        tell("ended", kind=type(error).__name__, message=str(error))

    def done(self) -> bool:
        return False

    def set_result(self, reply: Reply, /) -> None:
        tell("replied", request=reply.request, version=reply.version)

    def set_exception(self, error: Exception, /) -> None:
        tell("refused", kind=type(error).__name__)


def main(url: str) -> None:
    teller = Teller()
    options = ClientOptions(urls=check_urls(url), principal="alice", secret="s3cret", client=CLIENT_NAME)
    session = GatewaySession(options, teller, random=Random(7))
    try:
        session.open()
    except ConnectFailed as failed:
        tell("failed", message=str(failed))
        return
    for line in FileObjectThread(sys.stdin):
        match line.split():
            case ["subscribe", selector]:
                session.ask(Subscribe(UNNUMBERED, selector), teller)
            case ["publish", topic, value]:
                session.ask(Publish(UNNUMBERED, topic, value.encode()), teller)
            case ["cut"]:
                tell("cut", connected=session.cut())
            case ["close"]:
                tell("closed", confirmed=session.close(5.0))
                return


main(sys.argv[1])
