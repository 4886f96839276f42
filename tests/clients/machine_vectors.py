"""Writes what the client's machine does as vectors: inputs and effects as JSON, for clients in other languages.

    python -m tests.clients.machine_vectors

Each file in ``clients/javascript/test/vectors`` holds scenarios; a scenario is a list of steps, each an input and what
the machine does: its effects in order, the packets that are written, the state it is in then, and the transitions that
it made. Together they make every transition of ``gateway.core.client.transitions``. Time is virtual, and chance always
says the same. Sentences for people are left out, as each client has its own.

Inputs: ``start``; ``connected``, ``unreachable``, ``drop`` (code or null) and ``say`` (packets) of the node; ``wait``
(seconds); ``publish``, ``request``, ``values``, ``set_properties``, ``close`` (seconds until it is abandoned),
``give_up`` of the application; ``fetched`` and ``not_fetched`` where it makes fresh secrets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from gateway.core.client.transitions import Event, State
from tests.clients.scenario import Json, Scenario
from tests.support.client_scene import FAILED_OVER, REATTACHED, URL, WELCOME

FOLDER: Final = Path(__file__).resolve().parents[2] / "clients" / "javascript" / "test" / "vectors"

# --- Scenarios --------------------------------------------------------------------------------------------------------


def _reply(packet: int, request: int, **more: Any) -> Json:
    return {"type": "reply", "id": packet, "request": request} | more


def _receipt_of(packet: int, request: int) -> Json:
    return _reply(packet, request, version=request, event=f"e-{request}")


def _refusal(packet: int, request: int, code: str, **more: Any) -> Json:
    return _reply(packet, request, error={"code": code, "message": "no"} | more)


def _error(code: str, **more: Any) -> Json:
    return {"type": "error", "code": code, "message": "no"} | more


UPDATE: Final[Json] = {"type": "update", "topic": "t", "version": 1, "event": "e-0", "value": 7}
GO_AWAY: Final[Json] = {"type": "go-away", "reason": "it drains", "delay": 2.0}
EXPIRING: Final[Json] = {"type": "notice", "code": "credentials_expiring", "message": "soon"}
NO_ABANDON: Final = "its API has no way to drop a session without closing it"
KEEPS_MORE: Final = "it keeps the packets after the dropped one, as protocol 4.8.1 allows, and so says another oldest"
FETCHES_ONCE: Final = "it fetches the secret of a hello once, and connect fails if that cannot be had"


def opening() -> Iterator[Scenario]:
    """How a session is opened, and how it is not."""
    yield Scenario("a hello and a welcome open a session", properties={"room": "7"}, window=30).open()
    yield Scenario("what comes with the welcome counts after it").start().connected().say(WELCOME, UPDATE | {"id": 1})
    yield (
        Scenario("attempts that fail are followed by others, after pauses that grow")
        .start().unreachable().wait(0.125).unreachable().wait(0.25).connected().drop().wait(0.5).connected().welcome()
    )  # fmt: skip
    yield (
        Scenario("credentials that are not accepted end the opening")
        .start().connected().say(_error("unauthenticated")).drop(4201)
    )  # fmt: skip
    yield (
        Scenario("who is told to come later does, after the time that the node gives")
        .start().connected().say(_error("try_later", retry_after=2)).drop(4101).wait(2.0).wait(5.0).connected()
    )  # fmt: skip
    yield Scenario("a node that says nothing has hung").start().connected().wait(5.0).wait(0.125).connected().welcome()
    yield (
        Scenario("a welcome that goes on with a numbering is no answer to a hello")
        .start().connected().welcome(**REATTACHED).wait(5.0)
    )  # fmt: skip
    yield (
        Scenario("who cannot be reached in time is given up", connect_timeout=0.5)
        .start().unreachable().wait(0.125).unreachable().wait(0.25).unreachable().wait(0.07).unreachable().wait(0.04)
        .unreachable()
    )  # fmt: skip
    yield Scenario("opening is given up while a connection is made").start().give_up()
    yield Scenario("opening is given up before it begins").give_up()


def requests() -> Iterator[Scenario]:
    """What is asked, and what comes of it."""
    yield (
        Scenario("requests are numbered as they are sent, and answered by number").open()
        .publish("a", "t", 1).publish("b", "t", 2).say(_receipt_of(1, 1)).say(_receipt_of(2, 2))
    )  # fmt: skip
    yield (
        Scenario("a refusal for good rejects the call").open()
        .publish("a", "t", 1).say(_refusal(1, 1, "forbidden")).publish("b", "t", 2).say(_receipt_of(2, 2))
    )  # fmt: skip
    yield (
        Scenario("a refusal for now is followed by another try under a new number, by one request alone").open()
        .publish("a", "t", 1).publish("b", "t", 2)
        .say(_refusal(1, 1, "grid_unavailable")).say(_refusal(2, 2, "grid_unavailable"))
        .wait(0.14).wait(0.02).say(_refusal(3, 3, "grid_unavailable")).wait(0.3).say(_receipt_of(4, 4))
        .say(_receipt_of(5, 5))
    )  # fmt: skip
    yield (
        Scenario("a node's advice goes before the client's own").open()
        .publish("a", "t", 1).say(_refusal(1, 1, "grid_unavailable", retry_after=2.0)).wait(2.9).wait(0.2)
    )  # fmt: skip
    yield (
        Scenario("no more is under way than the node allows").open(limits=WELCOME["limits"] | {"requests": 1})
        .publish("a", "t", 1).publish("b", "t", 2).say(_receipt_of(1, 1)).say(_receipt_of(2, 2))
    )  # fmt: skip
    yield (
        Scenario("a request for which the node closes is given up, and the next is not").open()
        .publish("a", "t", 1).say(_error("message_too_big", request=1)).drop(1009).publish("b", "t", 2)
        .come_back(**FAILED_OVER)
    )  # fmt: skip
    yield (
        Scenario("... and the others that were under way are asked again", not_javascript=KEEPS_MORE).open()
        .publish("a", "t", 1).publish("b", "t", 2).say(_error("message_too_big", request=1)).drop(1009)
        .come_back(**FAILED_OVER)
    )  # fmt: skip
    yield (
        Scenario("the oldest request is given up when two connections in a row are closed for no stated one").open()
        .publish("a", "t", 1).drop(1009).wait(5.0).connected().welcome(**FAILED_OVER).drop(1009)
    )  # fmt: skip


def _page(packet: int, request: int, *topics: str, after: str | None = None) -> Json:
    items = [{"topic": each, "version": 3, "event": f"7-1-{len(each)}", "value": {"of": each}} for each in topics]
    return _reply(packet, request, values={"items": items} | ({} if after is None else {"next": after}))


def reading() -> Iterator[Scenario]:
    """How current values are read without a subscription, also where the session goes on elsewhere."""
    supports = {"supports": ["values"]}
    yield (
        Scenario("values are read page by page").open(**supports)
        .values("a", "t/**").say(_page(1, 1, "t/1", "t/2", after="t/2"))
        .values("b", "t/**", "t/2", 2).say(_page(2, 2, after="t/9")).values("c", "t/**", "t/9").say(_page(3, 3))
    )  # fmt: skip
    yield (
        Scenario("a page that had no answer is asked for again after a failover").open(**supports)
        .values("a", "t/*", "t/1", 5).drop().come_back(**FAILED_OVER, **supports).say(_page(1, 1, "t/2"))
    )  # fmt: skip
    yield (
        Scenario("... and once after any other recovery").open(**supports).values("a", "t/*").drop()
        .come_back(**REATTACHED, **supports, received=1).say(_page(1, 1, "t/2"))
    )  # fmt: skip
    yield (
        Scenario("a node that reads its copies is asked again, under a new number").open(**supports)
        .values("a", "t/*").say(_refusal(1, 1, "try_later", retry_after=1.0)).wait(1.6).say(_page(2, 2, "t/1"))
    )  # fmt: skip
    yield (
        Scenario("who may not read all of a selector is told").open(**supports)
        .values("a", "**").say(_refusal(1, 1, "forbidden"))
    )  # fmt: skip
    yield (
        Scenario("... and nobody else is held up by it").open(**supports).publish("a", "t", 1).values("b", "**")
        .publish("c", "t", 2).say(_refusal(1, 2, "forbidden")).say(_receipt_of(2, 1)).say(_receipt_of(3, 3))
    )  # fmt: skip
    yield Scenario("a node of an older release is not asked").open().values("a", "t/*")
    yield (
        Scenario("... nor is one to which the session goes while it waits").open(**supports).values("a", "t/*").drop()
        .come_back(**FAILED_OVER)
    )  # fmt: skip


def recovering() -> Iterator[Scenario]:
    """How connections are lost, and how the session comes back."""
    yield (
        Scenario("a lost connection is resumed where both sides were").open()
        .say(UPDATE | {"id": 1}).publish("a", "t", 1).drop().publish("b", "t", 2).come_back(**REATTACHED, received=0)
        .say(_receipt_of(2, 1), _receipt_of(3, 2))
    )  # fmt: skip
    yield (
        Scenario("what the node has received is not sent again").open()
        .publish("a", "t", 1).publish("b", "t", 2).drop().come_back(**REATTACHED, received=1)
        .say(_receipt_of(1, 1), _receipt_of(2, 2))
    )  # fmt: skip
    yield (
        Scenario("after a failover what is unanswered is asked again under its number").open()
        .publish("a", "t", 1).say(UPDATE | {"id": 1}).drop().come_back(**FAILED_OVER).say(_receipt_of(1, 1))
        .drop().wait(0.25)
    )  # fmt: skip
    yield (
        Scenario("what the grid forgot is asked for before what waits, and declared").open()
        .set_properties("a", {"room": "7"}).say(_reply(1, 1)).drop().publish("b", "t", 1).come_back(**FAILED_OVER)
    )  # fmt: skip
    yield (
        Scenario("a welcome for another session does not fit").open().drop().wait(0.125).connected()
        .welcome(**REATTACHED, session="s-2").wait(5.0)
    )  # fmt: skip
    yield (
        Scenario("a numbering that nobody knows is given up, and another welcome asked for").open().drop().wait(0.125)
        .connected().welcome(outcome="beamed_up", token="token-2").wait(0.25).connected().welcome(**FAILED_OVER)
    )  # fmt: skip
    yield (
        Scenario("a session that no node knows is over").open().publish("a", "t", 1).drop().wait(0.125).connected()
        .say(_error("session_unknown")).drop(4202)
    )  # fmt: skip
    yield (
        Scenario("the window ends the session").open(window=0.5).drop().wait(0.125).unreachable().wait(0.25)
        .unreachable().wait(0.07).unreachable().wait(0.04).unreachable()
    )  # fmt: skip
    yield (
        Scenario("the node that has a copy is the second hint, until a node asks to go")
        .open(backup="n2", mirror="sync").drop().wait(0.125).unreachable().wait(0.25).connected()
        .welcome(**REATTACHED, backup="n3", mirror="async").drop(4000).wait(0.5)
    )  # fmt: skip
    yield (
        Scenario("of two nodes that do not answer each is left out in turn").open(backup="n2", mirror="sync")
        .drop().wait(0.125).connected().wait(5.0).wait(0.25).connected().wait(5.0).wait(0.5)
    )  # fmt: skip
    yield (
        Scenario("an application may have packets acknowledged sooner", ack_packets=1).open()
        .say(UPDATE | {"id": 1}).wait(0.0).say(UPDATE | {"id": 2}).wait(0.0)
    )  # fmt: skip
    yield (
        Scenario("... but not later than the node needs it", ack_packets=1000).open()
        .say(UPDATE | {"id": 1}).wait(0.0).say(UPDATE | {"id": 2}).wait(0.0)
    )  # fmt: skip
    yield Scenario("a silent node is given up").open().wait(44.9).wait(0.2)
    yield (
        Scenario("a ping is answered, and its token and advice count from then on").open()
        .say({"type": "ping", "token": "token-1b", "backoff": {"initial": 4, "maximum": 10, "stable_after": 10}})
        .drop().wait(1.9).wait(0.2).connected()
    )  # fmt: skip
    yield Scenario("what was received is acknowledged in time").open().say(UPDATE | {"id": 1}).wait(0.4).wait(0.2)
    yield (
        Scenario("a packet that is missing is asked for by resuming").open().say(UPDATE | {"id": 2})
        .come_back(**REATTACHED, received=0).say(UPDATE | {"id": 1})
    )  # fmt: skip
    yield (
        Scenario("two connections in a row that break the protocol end the session").open()
        .say({"type": "hello", "principal": "x"}).wait(5.0).connected().welcome(**REATTACHED)
        .say({"type": "hello", "principal": "x"})
    )  # fmt: skip


def _event(packet: int, event: str, **more: Any) -> Json:
    return {"type": "update", "id": packet, "topic": "t", "version": packet, "event": event, "value": 7} | more


def _complete(packet: int, **positions: str) -> Json:
    named = {each.removeprefix("p"): event for each, event in positions.items()}
    partitions = [int(each) for each in named]
    return {
        "type": "notice", "id": packet, "code": "snapshots_complete", "message": "", "partitions": partitions,
        "positions": named,
    }  # fmt: skip


def replaying() -> Iterator[Scenario]:
    """What a client says of where it is, and what a node makes of it."""
    yield (
        Scenario("a position is named from the notice on, and moves with live updates").open()
        .say(_event(1, "3-1-5")).drop().come_back(**REATTACHED, received=0)
        .say(_complete(2, p3="3-1-7", p9="9-1-0")).say(_event(3, "3-1-6", snapshot=True)).drop().wait(0.25).connected()
        .welcome(**REATTACHED, received=0).say(_event(4, "3-1-9"), _event(5, "4-1-1")).drop().wait(0.5).connected()
    )  # fmt: skip
    yield (
        Scenario("what is folded, and snapshots, do not move it").open().say(_complete(1, p3="3-1-7"))
        .say(_event(2, "3-1-12", folded=2), _event(3, "3-1-8"), _event(4, "3-1-13", snapshot=True)).drop().wait(0.125)
        .connected()
    )  # fmt: skip
    yield (
        Scenario("after a replay nothing comes twice, and positions go on").open().say(_complete(1, p3="3-1-7"))
        .drop().come_back(**FAILED_OVER | {"lost": 0}, replayed=True).say(_event(1, "3-1-8"), _event(2, "3-1-10"))
        .drop().wait(0.25).connected()
    )  # fmt: skip
    yield (
        Scenario("of partitions that are not replayed nothing is known until the next notice").open()
        .say(_complete(1, p3="3-1-7", p9="9-1-1")).drop().come_back(**FAILED_OVER, replayed={"9": "gap"})
        .say(_event(1, "9-1-5"), _event(2, "3-1-8")).drop().wait(0.25).connected().welcome(**FAILED_OVER)
        .say(_complete(1, p9="9-1-6")).drop().wait(0.5).connected()
    )  # fmt: skip
    yield (
        Scenario("subscribes whose values have not all come are named, answered or not").open()
        .say(_complete(1, p3="3-1-7")).subscribe("one", "a/*").subscribe("two", "b").say(_reply(2, 1))
        .drop().wait(0.125).connected().welcome(**REATTACHED, received=2).say(_reply(3, 2), _complete(4, p3="3-1-8"))
        .say(_complete(5, p3="3-1-9") | {"request": 1}).drop().wait(0.25).connected()
    )  # fmt: skip
    yield (
        Scenario("a failover without a word about it forgets all positions").open().say(_complete(1, p3="3-1-7"))
        .drop().come_back(**FAILED_OVER).say(_event(1, "3-1-8")).drop().wait(0.25).connected()
    )  # fmt: skip
    yield (
        Scenario("values that are read again make a position unknown until they are complete").open()
        .say(_complete(1, p3="3-1-7", p9="9-1-1"))
        .say({"type": "notice", "id": 2, "code": "values_reread", "message": "", "partitions": [3]}).drop().wait(0.125)
        .connected().welcome(**REATTACHED, received=0).say(_event(3, "3-1-20"), _complete(4, p3="3-1-19")).drop()
        .wait(0.25).connected()
    )  # fmt: skip


def _answered(packet: int, ask: int, value: object) -> Json:
    return {"type": "answered", "id": packet, "ask": ask, "value": value}


def _unanswered(packet: int, ask: int, code: str, **more: Any) -> Json:
    return {"type": "answered", "id": packet, "ask": ask, "error": {"code": code, "message": "no"}} | more


def asking() -> Iterator[Scenario]:
    """How requests of applications are answered, also where their session goes on elsewhere."""
    supports = {"supports": ["questions"]}
    yield (
        Scenario("an answer follows its reply, and the calls of others").open(**supports).request("a", "q/A", 1)
        .request("b", "q/B", {"side": "bid"}).say(_reply(1, 1)).say(_reply(2, 2), _answered(3, 2, [7]))
        .say(_answered(4, 1, None))
    )  # fmt: skip
    yield (
        Scenario("an answer that comes before its reply is the answer all the same").open(**supports)
        .request("a", "q/A", 1).request("b", "q/B", 2).say(_answered(1, 1, 7), _unanswered(2, 2, "handler_failed"))
        .say(_reply(3, 1), _reply(4, 2)).request("c", "q/C", 3).say(_reply(5, 3)).say(_answered(6, 3, 9))
    )  # fmt: skip
    yield (
        Scenario("why there is no answer is told").open(**supports).request("a", "q/A", 1).request("b", "q/B", 2)
        .request("c", "q/C", 3).request("d", "q/D", 4).request("e", "q/E", 5).say(_refusal(1, 1, "no_handler"))
        .say(_refusal(2, 2, "handlers_busy")).say(_reply(3, 3), _unanswered(4, 3, "handler_lost", uncertain=True))
        .say(_reply(5, 4), _unanswered(6, 4, "question_timeout")).say(_reply(7, 5))
        .say(_unanswered(8, 5, "handler_failed"))
    )  # fmt: skip
    yield (
        Scenario("after a failover the answers are asked for that are waited for, and taken once").open(**supports)
        .request("a", "q/A", 1).request("b", "q/B", 2).request("c", "q/C", 3).say(_reply(1, 1), _reply(2, 2))
        .say(_answered(3, 1, 7)).drop().come_back(**FAILED_OVER, **supports).say(_answered(1, 1, 7))
        .say(_reply(2, 3), _reply(3, 4), _answered(4, 2, 8), _answered(5, 2, 8)).say(_answered(6, 3, 9))
    )  # fmt: skip
    yield (
        Scenario("after a reattachment nothing is asked").open(**supports).request("a", "q/A", 1).say(_reply(1, 1))
        .drop().come_back(**REATTACHED, **supports, received=1).say(_answered(2, 1, 7))
    )  # fmt: skip
    yield (
        Scenario("who waits for an answer learns of the end of the session").open(**supports).request("a", "q/A", 1)
        .say(_reply(1, 1)).drop(4204)
    )  # fmt: skip


def leaving() -> Iterator[Scenario]:
    """What a client does that is asked to go away."""
    yield (
        Scenario("a node is left at the drawn moment, when everything is answered").open().publish("a", "t", 1)
        .say(GO_AWAY | {"node": "n9"}).publish("b", "t", 2).wait(1.0).publish("c", "t", 3)
        .say(_receipt_of(1, 1)).say(_receipt_of(2, 2)).connected().welcome(**REATTACHED, node="n9", received=2)
    )  # fmt: skip
    yield Scenario("without a word about where, the hint is left out").open().say(GO_AWAY).wait(1.0)
    yield Scenario("who asks for no delay gets none").open().say(GO_AWAY | {"delay": 0}).wait(0.0)
    yield (
        Scenario("a second request to go away may be earlier, and answers are waited for two seconds")
        .open().publish("a", "t", 1).say(GO_AWAY | {"delay": 20.0}).say(GO_AWAY).wait(1.0).say(GO_AWAY).wait(1.9)
        .wait(0.2)
    )  # fmt: skip
    yield Scenario("the connection is lost before the moment has come").open().say(GO_AWAY).drop().wait(0.125)
    yield (
        Scenario("the connection is lost while answers are waited for").open().publish("a", "t", 1).say(GO_AWAY)
        .wait(1.0).drop().come_back(**REATTACHED, received=1)
    )  # fmt: skip


def ending() -> Iterator[Scenario]:
    """How sessions end."""
    bye = {"type": "bye", "reason": ""}
    yield Scenario("a close is confirmed by a bye").open().publish("a", "t", 1).close().say(bye)
    yield Scenario("a node ends the session").open().publish("a", "t", 1).say(bye)
    yield Scenario("an administrator ends the session").open().publish("a", "t", 1).drop(4204)
    yield (
        Scenario("who closes while the connection is lost comes back to say good-bye").open().drop().close()
        .come_back(**REATTACHED).say(bye)
    )  # fmt: skip
    yield Scenario("a close that no node confirms is abandoned").open().close(1.0).wait(1.1)
    yield Scenario("... also while the next attempt is waited for").open().drop().close(0.1).wait(0.11)
    yield Scenario("... while a connection is made").open().drop().wait(0.125).close(0.1).wait(0.11)
    yield Scenario("... during the handshake").open().drop().wait(0.125).connected().close(0.1).wait(0.11)
    yield Scenario("... before the moment to go away has come").open().say(GO_AWAY).close(0.1).wait(0.11)
    yield (
        Scenario("... while fresh credentials are made", renewable=True)
        .start().fetched("fresh-1").connected().welcome().drop(4006).wait(0.125).close(0.1).wait(0.11)
    )  # fmt: skip
    yield (
        Scenario("... while answers are waited for", not_javascript=NO_ABANDON).open().publish("a", "t", 1)
        .say(GO_AWAY).wait(1.0).give_up()
    )  # fmt: skip


def credentials() -> Iterator[Scenario]:
    """What is shown of credentials that end."""

    def renewable(name: str) -> Scenario:
        return Scenario(name, renewable=True).start().fetched("fresh-1").connected().welcome()

    yield (
        renewable("credentials that ended are replaced at the resume").drop(4006).wait(0.125).fetched("fresh-2")
        .connected().welcome(**REATTACHED).drop().wait(0.25)
    )  # fmt: skip
    yield (
        renewable("an attempt whose credentials cannot be had has failed").drop(4006).wait(0.125).not_fetched()
        .wait(0.25).fetched("fresh-2").connected()
    )  # fmt: skip
    yield (
        renewable("a resume that is refused because credentials ended comes again with fresh ones").drop().wait(0.125)
        .connected().say(_error("credentials_expired")).drop(4201).wait(0.25).fetched("fresh-2").connected()
    )  # fmt: skip
    yield (
        renewable("credentials are refreshed on the open connection, again after a refusal").say(EXPIRING | {"id": 1})
        .not_fetched().wait(1.5).fetched("fresh-2").say(_refusal(2, 1, "unauthenticated")).wait(3.0)
        .fetched("fresh-3").say(_reply(3, 2)).drop().wait(0.125)
    )  # fmt: skip
    yield (
        Scenario("a hello whose credentials cannot be had is tried again", renewable=True, not_javascript=FETCHES_ONCE)
        .start().not_fetched().wait(0.125).fetched("fresh-1").connected().welcome()
    )  # fmt: skip


FILES: Final = (opening, requests, reading, recovering, replaying, asking, leaving, ending, credentials)


def vectors() -> dict[str, Json]:
    """Play everything; returns the content by name of file."""
    return {
        f"{each.__name__}.json": {
            "about": each.__doc__,
            "generated": "python -m tests.clients.machine_vectors",
            "url": URL,
            "scenarios": [scenario.to_json() for scenario in each()],
        }
        for each in FILES
    }


def transitions_of(contents: Iterable[Json]) -> set[tuple[State, Event, State]]:
    """Return the transitions that vectors make."""
    return {
        (State(before), Event(event), State(after))
        for content in contents
        for scenario in content["scenarios"]
        for step in scenario["steps"]
        for before, event, after in step["transitions"]
    }


def text_of(content: Json) -> str:
    """Return a file's content as it is written, a step a line."""
    head = {name: value for name, value in content.items() if name != "scenarios"}
    scenarios = []
    for scenario in content["scenarios"]:
        steps = ",\n".join(f"    {json.dumps(each)}" for each in scenario["steps"])
        rest = json.dumps({name: value for name, value in scenario.items() if name != "steps"})
        scenarios.append(f'  {rest[:-1]}, "steps": [\n{steps}\n  ]}}')
    return f'{json.dumps(head)[:-1]}, "scenarios": [\n' + ",\n".join(scenarios) + "\n]}\n"


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    for name, content in vectors().items():
        (FOLDER / name).write_text(text_of(content))


if __name__ == "__main__":
    main()
