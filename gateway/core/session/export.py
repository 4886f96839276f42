"""A session as bytes, for the node that takes it over (``byte_form`` says how they are laid out).

```text
sealed: join( record of the machine,   what is numbered, kept for resending and waiting
              record of the session )  requests, answers, credentials, tokens, losses, what it selects
```

An export is all of ``ServerSession``, and nothing of the node: no epoch and no owner, which the grid decides, no
connection, no lock, no deadline. It holds what the client has not seen yet, and secrets of credentials that have not
been looked at: it is to be kept as the session itself is, and not to be logged.

Whoever goes on with a restored session calls ``session.pending.restart()``: what the former owner had started may have
been executed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, overload

from gateway.core.session.durable_rows import (
    DURABLE_REQUESTS,
    read_durable_request,
    read_places,
    write_durable_request,
    write_places,
)
from gateway.core.session.exchange_rows import EXCHANGE_REQUESTS, read_exchange_request, write_exchange_request
from gateway.core.session.pending import PendingRequests, Work
from gateway.core.session.queue_rows import QUEUE_REQUESTS, read_queue_request, write_queue_request
from gateway.core.session.server_session import NO_HANDLERS, ServerSession
from gateway.core.stream.byte_form import Bodies, Record, join, part, seal, unseal, write_record
from gateway.core.stream.machine import SessionMachine
from gateway.core.topics.selections import Selections
from gateway.core.types import (
    Attempt,
    GridGeneration,
    JsonValue,
    RequestNumber,
    SessionId,
    TokenGeneration,
)
from gateway.core.wire.codec.fields import word_set
from gateway.core.wire.codec.will_packets import read_wills, write_wills
from gateway.core.wire.durable_packets import AdvanceDurable, OpenDurable, ReleaseDurable, RemoveDurable
from gateway.core.wire.errors import InvalidExport, InvalidSelector, LocalProtocolError
from gateway.core.wire.exchange_packets import Answer, Ask, Await, Handle, Unhandle
from gateway.core.wire.packets import (
    Authenticate,
    Bye,
    Publish,
    ReadHistory,
    SetProperties,
    Subscribe,
    Unsubscribe,
)
from gateway.core.wire.queue_packets import (
    Cancel,
    Consume,
    Declare,
    Send,
    Settle,
)
from gateway.core.wire.transaction_packets import Begin, Commit, Rollback, Stage, TransactionRequest
from gateway.core.wire.value_packets import ReadValues
from gateway.core.wire.will_packets import SetWills

_MACHINE_AND_SESSION = 2
"""Parts of an export."""

_EXPORTED = (
    "id",
    "principal",
    "window",
    "pending",
    "started",
    "unseen",
    "settled",
    "refused",
    "newest",
    "selections",
    "properties",
    "handlers",
    "supports",
    "roles",
    "principal_properties",
    "credential",
    "credential_expires",
    "credential_notice",
    "credential_told",
    "token_generation",
    "confirmed",
    "attempt",
    "token_confirmed",
    "publish_partitions",
    "declared",
    "declaring",
    "stored_generation",
    "from_copy",
)
"""The fields of an exported session; with a change of them ``byte_form.VERSION`` grows."""

S = TypeVar("S", bound=ServerSession)
"""What a node makes of it."""


def export(session: ServerSession, now: float) -> bytes:
    """Write everything that another node needs to go on with a session as if nothing had been.

    Args:
        session: which stays as it is.
        now: the time, in seconds of the clock by which its machine was given times.
    """
    bodies = Bodies()
    answers, pending = session.answers, session.pending
    fields: dict[str, JsonValue] = {
        "id": session.id,
        "principal": session.principal,
        "window": session.window,
        "pending": [write_request(work, bodies) for work in pending],
        "started": pending.started,
        "unseen": [list(each) for each in answers.unseen],
        "settled": answers.settled,
        "refused": answers.refused,
        "newest": session.newest,
        "selections": list(session.selections.to_wire()),
        "properties": dict(session.properties),
        "handlers": dict(session.handlers),
        "supports": list[JsonValue](sorted(session.supports)),
        "roles": list[JsonValue](sorted(session.roles)),
        "principal_properties": dict(session.principal_properties),
        "credential": session.credential,
        "credential_expires": session.credential_expires,
        "credential_notice": session.credential_notice,
        "credential_told": session.credential_told,
        "token_generation": session.token_generation,
        "confirmed": session.confirmed,
        "attempt": session.attempt,
        "token_confirmed": session.token_confirmed,
        "publish_partitions": list[JsonValue](sorted(session.publish_partitions)),
        "declared": session.declared,
        "declaring": None if session.declaring is None else list(session.declaring),
        "stored_generation": session.stored_generation,
        "from_copy": session.from_copy,
    }
    return seal(join([session.machine.export(now), write_record(fields, bodies)]))


@overload
def restore(data: bytes, now: float) -> ServerSession: ...


@overload
def restore(data: bytes, now: float, make: Callable[[SessionMachine], S]) -> S: ...


def restore(data: bytes, now: float, make: Callable[[SessionMachine], ServerSession] | None = None) -> ServerSession:
    """Make a session that cannot be told from the exported one.

    Args:
        data: what ``export`` returned.
        now: the time by the clock with which the session goes on.
        make: makes the session with the restored machine, which is then filled; None for a ``ServerSession``.

    Raises:
        UnknownExportVersion: another release has written it, in a form that this one does not know.
        InvalidExport: it is truncated, altered or no export at all, or of another session than *make* has made.
    """
    parts = part(unseal(data))
    if len(parts) != _MACHINE_AND_SESSION:
        raise InvalidExport(f"an export has {_MACHINE_AND_SESSION} parts, and not {len(parts)}")
    machine = SessionMachine.restore(parts[0], now)
    record = Record(parts[1], "session", _EXPORTED)
    id_, principal, window = SessionId(record.text("id")), record.text("principal"), record.number("window")
    declared = GridGeneration(record.integer("declared"))
    if make is None:
        session = ServerSession(id_, principal=principal, window=window, machine=machine, declared=declared)
    else:
        session = make(machine)
        if (session.id, session.principal) != (id_, principal):
            raise InvalidExport(
                f"the export is of session {id_!r} of {principal!r}, and not of {session.id!r} of {session.principal!r}"
            )
        session.window, session.declared = window, declared
    requests = [read_request(row, record, "pending") for row in record.rows("pending")]
    session.pending = PendingRequests(requests, started=record.integer("started", 0, len(requests)))
    session.answers.unseen.extend(_read_unseen(row, record) for row in record.rows("unseen"))
    session.answers.settled = RequestNumber(record.integer("settled"))
    session.answers.refused = record.integer("refused")
    session.newest = RequestNumber(record.integer("newest"))
    try:
        session.selections = Selections.from_wire(record.texts("selections"))
    except InvalidSelector as error:
        raise InvalidExport(f"selections of the session: {error}") from None
    session.properties = record.properties("properties")
    session.handlers = _read_handlers(record)
    session.supports = word_set(tuple(record.texts("supports")))
    session.roles = frozenset(record.texts("roles"))
    session.principal_properties = record.properties("principal_properties")
    session.credential = record.optional_text("credential")
    session.credential_expires = record.optional_number("credential_expires")
    session.credential_notice = record.number("credential_notice")
    session.credential_told = record.boolean("credential_told")
    session.token_generation = TokenGeneration(record.integer("token_generation"))
    session.confirmed = TokenGeneration(record.integer("confirmed"))
    session.attempt = Attempt(record.integer("attempt"))
    session.token_confirmed = record.boolean("token_confirmed")
    session.publish_partitions = frozenset(record.integers("publish_partitions"))
    session.declaring = _read_declaring(record)
    session.stored_generation = GridGeneration(record.integer("stored_generation"))
    session.from_copy = record.boolean("from_copy")
    return session


def write_request(work: Work, bodies: Bodies) -> list[JsonValue]:  # noqa: C901, PLR0912 - a case for each kind of request
    """Write the row of a pending request; values are added to *bodies* of the record."""
    match work:
        case Publish(request, topic, value, resubmitted, ttl):  # by far the most frequent, and the largest
            row: list[JsonValue] = ["publish", request, resubmitted, topic, bodies.put(value)]
            return row if ttl is None else [*row, ttl]
        case Subscribe(request, selector, resubmitted):
            return ["subscribe", request, resubmitted, selector]
        case Unsubscribe(request, selector, resubmitted, keep):
            return ["unsubscribe", request, resubmitted, selector, list(keep)]
        case ReadHistory(request, selector, after, earliest, limit, resubmitted):
            return ["history", request, resubmitted, selector, write_places(after), earliest, limit]
        case ReadValues(request, selector, behind, limit, resubmitted):
            return ["values", request, resubmitted, selector, behind, limit]
        case SetWills(request, wills, resubmitted):
            return ["wills", request, resubmitted, write_wills(wills).decode()]
        case SetProperties(request, changes, resubmitted):
            return ["properties", request, resubmitted, dict(changes)]
        case Authenticate(request, secret, principal, resubmitted):
            return ["authenticate", request, resubmitted, principal, secret]
        case Send() | Consume() | Cancel() | Settle() | Declare():
            return write_queue_request(work, bodies)
        case OpenDurable() | AdvanceDurable() | ReleaseDurable() | RemoveDurable():
            return write_durable_request(work)
        case Begin() | Stage() | Commit() | Rollback():
            return _write_transaction_request(work, bodies)
        case Handle() | Unhandle() | Ask() | Await() | Answer():
            return write_exchange_request(work, bodies)
        case Bye(reason):
            return ["bye", reason]
        case _:
            raise LocalProtocolError("a malformed request is answered before it is pending")


def _write_transaction_request(work: TransactionRequest, bodies: Bodies) -> list[JsonValue]:
    match work:
        case Begin(request, resubmitted):
            return ["begin", request, resubmitted]
        case Stage(request, transaction, operation, resubmitted):
            return ["stage", request, resubmitted, transaction, write_request(operation, bodies)]
        case Commit(request, transaction, resubmitted):
            return ["commit", request, resubmitted, transaction]
        case Rollback(request, transaction, resubmitted):
            return ["rollback", request, resubmitted, transaction]


def read_request(  # noqa: C901, PLR0912 - a case for each kind of request
    row: JsonValue, record: Record, name: str
) -> Work:
    """Read the row of a request from the field *name* of a record.

    Raises:
        InvalidExport: it is nothing of the kind.
    """
    match row:
        case ["bye", str(reason)]:
            return Bye(reason)
        case [str(kind), *_] if kind in QUEUE_REQUESTS:
            return read_queue_request(row, record, name)
        case [str(kind), *_] if kind in DURABLE_REQUESTS:
            return read_durable_request(row, record, name)
        case [str(kind), *_] if kind in EXCHANGE_REQUESTS:
            return read_exchange_request(row, record, name)
        case [str("begin" | "stage" | "commit" | "rollback"), *_]:
            return _read_transaction_request(row, record, name)
        case [str(kind), int(request), bool(resubmitted), *rest] if request >= 0:
            number = RequestNumber(request)
            match kind, rest:
                case "publish", [str(topic), place]:
                    return Publish(number, topic, record.body(name, place), resubmitted)
                case "publish", [str(topic), place, float() | int() as ttl]:
                    return Publish(number, topic, record.body(name, place), resubmitted, float(ttl))
                case "subscribe", [str(selector)]:
                    return Subscribe(number, selector, resubmitted)
                case "unsubscribe", [str(selector), [*keep]]:
                    kept = tuple([each for each in keep if isinstance(each, str)])
                    if len(kept) == len(keep):
                        return Unsubscribe(number, selector, resubmitted, kept)
                case "history", [str(selector), dict(places), bool(earliest), int() | None as limit]:
                    return ReadHistory(number, selector, read_places(places), earliest, limit, resubmitted)
                case "values", [str(selector), str() | None as behind, int() | None as limit]:
                    return ReadValues(number, selector, behind, limit, resubmitted)
                case "properties", [dict(changes)]:
                    values = {name: value for name, value in changes.items() if value is None or isinstance(value, str)}
                    if len(values) == len(changes):
                        return SetProperties(number, values, resubmitted)
                case "wills", [str(text)]:
                    with suppress(ValueError):
                        return SetWills(number, read_wills(text), resubmitted)
                case "authenticate", [str(principal), str(secret)]:
                    return Authenticate(number, secret, principal, resubmitted)
    return record.fail(name, "a list of requests")


def _read_transaction_request(row: list[JsonValue], record: Record, name: str) -> TransactionRequest:
    match row:
        case ["begin", int(request), bool(resubmitted)]:
            return Begin(RequestNumber(request), resubmitted)
        case ["commit", int(request), bool(resubmitted), int(transaction)]:
            return Commit(RequestNumber(request), RequestNumber(transaction), resubmitted)
        case ["rollback", int(request), bool(resubmitted), int(transaction)]:
            return Rollback(RequestNumber(request), RequestNumber(transaction), resubmitted)
        case ["stage", int(request), bool(resubmitted), int(transaction), staged]:
            operation = read_request(staged, record, name)
            if isinstance(operation, Publish | Send | Settle):
                return Stage(RequestNumber(request), RequestNumber(transaction), operation, resubmitted)
    return record.fail(name, "a list of requests")


def _read_unseen(row: JsonValue, record: Record) -> tuple[int, RequestNumber, RequestNumber]:
    match row:
        case [int(packet), int(first), int(last)]:
            return packet, RequestNumber(first), RequestNumber(last)
    return record.fail("unseen", "a list of packets with their requests")


def _read_handlers(record: Record) -> dict[str, int]:
    match record.value("handlers"):
        case dict(handlers):
            counts = {selector: count for selector, count in handlers.items() if type(count) is int}
            if len(counts) == len(handlers):
                return counts or NO_HANDLERS
    return record.fail("handlers", "an object of numbers")


def _read_declaring(record: Record) -> tuple[int, GridGeneration] | None:
    match record.value("declaring"):
        case None:
            return None
        case [int(packet), int(known)]:
            return packet, GridGeneration(known)
    return record.fail("declaring", "a packet and a generation, or nothing")
