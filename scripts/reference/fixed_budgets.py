"""What no setting says of what one client can take of a node, as a table that is made from the constants themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Final

from gateway.adapters import tls_connection, work_budget
from gateway.adapters.admin import connection as admin_connection
from gateway.adapters.admin import pacing, places, public_pages
from gateway.adapters.authentication import static
from gateway.adapters.websocket import connection, frames, read_scheduler, upgrade, upgrade_request, work
from gateway.app.requests import subscribe, turns
from gateway.app.security import authentication, verifications
from gateway.core.pacing import failures, verification_queue
from gateway.core.topics import selectors, topics
from gateway.core.topics import work as topics_work
from gateway.core.wire.codec import salvage, values
from gateway.settings.quantities import Bytes
from scripts.reference.markdown import code, table

INTRODUCTION: Final = """\
What follows is set by no setting, because every node has to decide alike, or because a larger value would open the
node to everybody. Work of one connection is estimated by constants, and not measured while it is done: nobody is
charged for a pause of the machine. 2 % of a core are 20 ms of its time a second."""

SESSION: Final = "one connection with a session"
UNAUTHENTICATED: Final = "one connection without a session"
ALL: Final = "all connections, in a turn of the node's loop"
VERIFICATIONS: Final = "verification of secrets"
ADMIN: Final = "the admin port"

_MILLISECONDS: Final = 1e3
_MICROSECONDS: Final = 1e6
_NANOSECONDS: Final = 1e9
_PERCENT: Final = 100


@dataclass(frozen=True)
class FixedBudget:
    """A row: something that is bounded by constants.

    Attributes:
        whose: who shares it.
        amount: writes how much it is.
        meaning: writes of what, and what becomes of more.
        constants: that it is made from, each with the module that has it.
    """

    whose: str
    amount: Callable[[], str]
    meaning: Callable[[], str]
    constants: Sequence[tuple[ModuleType, str]]


def fixed_budgets_table() -> str:
    """Write the table."""
    rows = []
    last = ""
    for each in FIXED_BUDGETS:
        names = ", ".join(code(name) for _, name in each.constants)
        rows.append((each.whose if each.whose != last else "", each.amount(), each.meaning(), names))
        last = each.whose
    return table(("What may be taken by", "How much", "Of what, and what becomes of more", "Constants"), rows)


def _core(share: float) -> str:
    return f"{share * _PERCENT:.10g} % of a core"


def _ms(seconds: float) -> str:
    return f"{seconds * _MILLISECONDS:.10g} ms"


def _us(seconds: float) -> str:
    return f"{seconds * _MICROSECONDS:.10g} µs"


def _number(value: float) -> str:
    return f"{value:,.10g}"


def _bytes(value: int) -> str:
    shown = Bytes().show(value)
    return shown if not shown.isdecimal() else f"{_number(value)} bytes"


def _pace(limits: work_budget.WorkLimits) -> str:
    return f"{_core(limits.rate)}, {_ms(limits.burst)} at once"


def _silence(limits: work_budget.WorkLimits) -> str:
    return f"{_ms(limits.idle_burst)}, then {_core(limits.idle_rate)}"


def _of_frames() -> str:
    return (
        "Work of reading what it sends beside its packets. "
        f"A frame that is no message by itself (a ping, a pong, a fragment) counts as {_us(work.FRAME_COST)}, "
        f"a byte as {work.BYTE_COST * _NANOSECONDS:.10g} ns, a read that completes no message as "
        f"{_us(work.READ_COST)}. "
        f"Over TLS a further record counts as {_us(tls_connection.RECORD_COST)}. "
        "Above, the connection is read more slowly. A message in one frame counts in `rate_packets`, and its bytes in "
        "`rate_bytes`, too."
    )


def _of_silence() -> str:
    return (
        "The same work without a message in between. Above, the connection is closed with code 1008, and its reason "
        "says so."
    )


FIXED_BUDGETS: Final[Sequence[FixedBudget]] = (
    FixedBudget(
        SESSION,
        lambda: _pace(work_budget.KNOWN_WORK),
        _of_frames,
        (
            (work_budget, "KNOWN_WORK"),
            (work, "FRAME_COST"),
            (work, "BYTE_COST"),
            (work, "READ_COST"),
            (tls_connection, "RECORD_COST"),
        ),
    ),
    FixedBudget(
        SESSION,
        lambda: _silence(work_budget.KNOWN_WORK),
        lambda: (
            f"{_of_silence()} Whoever goes on sending then loses the connection without further words, after "
            f"{_number(connection.CLOSE_TIMEOUT)} s at the latest."
        ),
        ((work_budget, "KNOWN_WORK"), (connection, "CLOSE_TIMEOUT")),
    ),
    FixedBudget(
        SESSION,
        lambda: f"{_bytes(connection.PONG_BACKLOG)} unsent",
        lambda: "Above, its pings go unanswered until it has read.",
        ((connection, "PONG_BACKLOG"),),
    ),
    FixedBudget(
        SESSION,
        lambda: (
            f"{_number(authentication.REFRESHES_AT_ONCE)} at once, then one in "
            f"{_number(1 / authentication.REFRESHES_PER_SECOND)} s"
        ),
        lambda: (
            "Requests `authenticate`. Above, they are answered `authentication_unavailable` with a time to wait; the "
            "credentials are not looked at."
        ),
        ((authentication, "REFRESHES_AT_ONCE"), (authentication, "REFRESHES_PER_SECOND")),
    ),
    FixedBudget(
        SESSION,
        lambda: f"{_number(topics_work.MOST_STEPS)} steps for each of both",
        lambda: (
            "What one subscribe or unsubscribe may take to be compared with the policy, and to find entries of the "
            "list "
            "that decide nothing any more. A step is 0.5 to 1 µs. A comparison with the policy that needs more counts "
            "as not "
            "allowed; an entry that is not found out stays in the list."
        ),
        ((topics_work, "MOST_STEPS"),),
    ),
    FixedBudget(
        SESSION,
        lambda: (
            f"{_number(turns.STEPS_PER_PACKET)} steps, {_number(subscribe.ENTRIES_PER_PACKET)} entries besides the "
            f"first, {_number(subscribe.BYTES_PER_PACKET)} bytes of entries that come, or "
            f"{_number(subscribe.TOPICS_PER_PACKET)} topics that are looked at"
        ),
        lambda: "What counts as one more packet in `rate_packets`, for a subscribe or unsubscribe.",
        (
            (turns, "STEPS_PER_PACKET"),
            (subscribe, "ENTRIES_PER_PACKET"),
            (subscribe, "BYTES_PER_PACKET"),
            (subscribe, "TOPICS_PER_PACKET"),
        ),
    ),
    FixedBudget(
        SESSION,
        lambda: (
            f"{_bytes(topics.MAX_PATH_BYTES)}, {_number(topics.MAX_SEGMENTS)} segments, {_number(selectors.MAX_ANY)} "
            "times `**`"
        ),
        lambda: "The largest topic or selector. Above, the request is refused.",
        ((topics, "MAX_PATH_BYTES"), (topics, "MAX_SEGMENTS"), (selectors, "MAX_ANY")),
    ),
    FixedBudget(
        SESSION,
        lambda: f"{_number(salvage.BYTES_PER_PACKET)} bytes",
        lambda: (
            "What counts as one more packet in `rate_packets`, of a message that the fast reader of JSON has refused: "
            "it "
            f"nests deeper than {_number(values.MAX_NESTING)} arrays and objects, or is no Unicode."
        ),
        ((salvage, "BYTES_PER_PACKET"), (values, "MAX_NESTING")),
    ),
    FixedBudget(
        UNAUTHENTICATED,
        lambda: _pace(work_budget.UNAUTHENTICATED_WORK),
        lambda: "The same work before the first packet has been accepted. Above, the connection is read more slowly.",
        ((work_budget, "UNAUTHENTICATED_WORK"),),
    ),
    FixedBudget(
        UNAUTHENTICATED,
        lambda: _silence(work_budget.UNAUTHENTICATED_WORK),
        _of_silence,
        ((work_budget, "UNAUTHENTICATED_WORK"),),
    ),
    FixedBudget(
        UNAUTHENTICATED,
        lambda: f"{_number(upgrade.REQUEST_TIMEOUT)} s and {_bytes(upgrade_request.HEAD_BYTES)}",
        lambda: (
            "From the connection to the end of its request, TLS included, however the bytes trickle in, and the head "
            "of that "
            "request. Above, the connection is closed; a head that is too large is answered 431. `handshake_timeout` "
            "begins "
            "afterwards."
        ),
        ((upgrade, "REQUEST_TIMEOUT"), (upgrade_request, "HEAD_BYTES")),
    ),
    FixedBudget(
        ALL,
        lambda: f"{_ms(read_scheduler.SESSIONS_TIME)} for those with a session",
        lambda: (
            "Time that is measured, of reading what clients say. Who comes later waits for the next turn, in a queue "
            "that is "
            f"fair to addresses. One connection is read at most {_number(connection.READS_AT_ONCE)} times "
            f"{_bytes(connection.READ_BYTES)} in a turn, or {_number(frames.FRAMES_AT_ONCE)} frames that are no "
            "messages."
        ),
        (
            (read_scheduler, "SESSIONS_TIME"),
            (connection, "READS_AT_ONCE"),
            (connection, "READ_BYTES"),
            (frames, "FRAMES_AT_ONCE"),
        ),
    ),
    FixedBudget(
        ALL,
        lambda: (
            f"{_ms(read_scheduler.UNAUTHENTICATED_TIME)}, and "
            f"{_number(read_scheduler.UNAUTHENTICATED_SHARE * _PERCENT)} % of the time, for "
            "those without"
        ),
        lambda: (
            "The share of strangers: accepting, TLS handshakes, requests and first packets of all of them. It holds "
            "while the "
            f"node has others to serve, from {_ms(read_scheduler.UNAUTHENTICATED_BURST)} in a row on; who comes later "
            "waits, "
            "in a queue that is fair to addresses, too."
        ),
        (
            (read_scheduler, "UNAUTHENTICATED_TIME"),
            (read_scheduler, "UNAUTHENTICATED_SHARE"),
            (read_scheduler, "UNAUTHENTICATED_BURST"),
        ),
    ),
    FixedBudget(
        ALL,
        lambda: f"{_bytes(turns.TURN_BYTES)} of requests, and {_ms(turns.TURN_TIME)}",
        lambda: (
            f"Values that are published, each request with {_bytes(turns.PACKET_BYTES)} besides; of selectors a byte "
            "counts as "
            f"{_number(turns.SELECTOR_COST)}. What is more waits for later turns, in a queue that is fair to "
            f"principals; requests of at most {_bytes(turns.LIGHT_BYTES)} pass in front."
        ),
        (
            (turns, "TURN_BYTES"),
            (turns, "TURN_TIME"),
            (turns, "PACKET_BYTES"),
            (turns, "SELECTOR_COST"),
            (turns, "LIGHT_BYTES"),
        ),
    ),
    FixedBudget(
        VERIFICATIONS,
        lambda: f"{_number(static.PLACES)} places of `static`",
        lambda: (
            "Secrets that are hashed at the same time. `callback` has as many places as its file says in "
            "`concurrency`. A "
            "verdict that is remembered, a token of a session and a JSON web token need no place."
        ),
        ((static, "PLACES"),),
    ),
    FixedBudget(
        VERIFICATIONS,
        lambda: (
            f"{_number(verifications.WAITING_PER_PLACE)} waiting for each place, for {_number(verifications.PATIENCE)} "
            "s at most"
        ),
        lambda: (
            "Who waits beyond that is told `try_later`: of those whose failures put them last, the newest of the "
            "address "
            "that has the most. The queue is fair to addresses, and within an address to principals."
        ),
        ((verifications, "WAITING_PER_PLACE"), (verifications, "PATIENCE")),
    ),
    FixedBudget(
        VERIFICATIONS,
        lambda: (
            f"{_number(failures.FORGIVEN)} failures, and one more every {_number(1 / failures.FORGIVEN_PER_SECOND)} s"
        ),
        lambda: (
            "Credentials of one address, or of one principal, that are refused. Above, it waits behind all who did "
            "not fail: "
            f"these get {_number(verification_queue.TURNS_BEFORE_OTHERS)} turns before it gets one."
        ),
        (
            (failures, "FORGIVEN"),
            (failures, "FORGIVEN_PER_SECOND"),
            (verification_queue, "TURNS_BEFORE_OTHERS"),
        ),
    ),
    FixedBudget(
        ADMIN,
        lambda: f"{_number(places.UNAUTHENTICATED)} connections without a token, {_number(places.CALLERS)} with one",
        lambda: (
            "Above, the one that has been idle for longest is closed; a request that is under way goes only if fewer "
            "than half "
            "are idle. Who has shown a valid token has its place apart."
        ),
        ((places, "UNAUTHENTICATED"), (places, "CALLERS")),
    ),
    FixedBudget(
        ADMIN,
        lambda: (
            f"{_number(admin_connection.REQUEST_SECONDS)} s for a request, {_number(admin_connection.ANSWER_SECONDS)} "
            "s for its "
            f"answer, {_number(admin_connection.KEEP_ALIVE_SECONDS)} s idle"
        ),
        lambda: "Without a token. Then the connection is closed.",
        (
            (admin_connection, "REQUEST_SECONDS"),
            (admin_connection, "ANSWER_SECONDS"),
            (admin_connection, "KEEP_ALIVE_SECONDS"),
        ),
    ),
    FixedBudget(
        ADMIN,
        lambda: f"{_bytes(places.UNAUTHENTICATED_BYTES)}",
        lambda: (
            "Held for all without a token: halves of requests, and answers that were not taken. Above, those held "
            "first go."
        ),
        ((places, "UNAUTHENTICATED_BYTES"),),
    ),
    FixedBudget(
        ADMIN,
        lambda: f"{_core(pacing.SHARE)}, {_ms(pacing.BURST_SECONDS)} at once, {_ms(pacing.TURN_SECONDS)} in a turn",
        lambda: (
            "Work for all without a token. Above, they wait; `/healthz`, `/readyz` and accepting have "
            f"{_number(pacing.WEIGHTS[pacing.ServiceClass.HEALTH])} times the time of anything else that is wanted, "
            "`/metrics` "
            f"{_number(pacing.WEIGHTS[pacing.ServiceClass.METRICS])} times."
        ),
        ((pacing, "SHARE"), (pacing, "BURST_SECONDS"), (pacing, "TURN_SECONDS"), (pacing, "WEIGHTS")),
    ),
    FixedBudget(
        ADMIN,
        lambda: (
            f"{_number(public_pages.RENDERINGS_AT_ONCE)} at once, then {_number(public_pages.RENDERINGS_PER_SECOND)} a "
            "second"
        ),
        lambda: "Times that `/metrics` is written anew. Who asks more often gets what was written last.",
        ((public_pages, "RENDERINGS_AT_ONCE"), (public_pages, "RENDERINGS_PER_SECOND")),
    ),
    FixedBudget(
        ADMIN,
        lambda: (
            f"{_number(failures.FORGIVEN)} wrong tokens, and one more every "
            f"{_number(1 / failures.FORGIVEN_PER_SECOND)} s"
        ),
        lambda: (
            "From one address, the console's WebSocket included. Above, whoever shows no valid token is answered 429."
        ),
        ((failures, "FORGIVEN"), (failures, "FORGIVEN_PER_SECOND")),
    ),
)
"""All of them, in the order of the table."""
