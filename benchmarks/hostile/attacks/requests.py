"""Floods of requests: everything that a logged-in client may ask for, small and as large as it may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.hostile.attack import Attack, Attacker, Needs
from benchmarks.hostile.connection import Connection
from benchmarks.storm import wire

WINDOW: Final = 256
"""Requests without a reply: what the welcome announces by default; a node need not read from who has more."""

MESSAGE_BYTES: Final = 65_000
"""Of a message with several requests."""

BATCH: Final = 128
"""Most requests in a message: half of the window, so that the next ones are on their way while replies come."""

SEVERAL: Final = 16
"""Sessions of an account that has several."""

LONG_SEGMENT: Final = "s" * 30
"""32 of them, with what stands between, are a topic or selector of nearly 1,024 bytes."""

VALUE_BYTES: Final = 32_700
"""Of the largest values: a little below ``limit_value_bytes``."""

_FRAME_OF_A_REQUEST: Final = 90
"""Bytes of a request beside its own fields."""

Fields = Callable[[int], str]
"""Makes the fields of a request, type first and without braces, by its number."""


class Pump:
    """Asks as fast as a window and the node allow, over one session.

    Args:
        connection: of the session, greeted.
        fields: of each request.
        window: requests without a reply.
        count: told how many requests each message has.
    """

    def __init__(self, connection: Connection, fields: Fields, window: int, count: Callable[[int], None]) -> None:
        self._connection = connection
        self._fields = fields
        self._window = window
        self._count = count
        size = len(fields(0).encode()) + _FRAME_OF_A_REQUEST
        self._batch = max(1, min(BATCH, window // 2, MESSAGE_BYTES // size))

    @property
    def unanswered(self) -> int:
        """Requests without a reply."""
        return self._connection.request - self._connection.replies

    async def stroke(self) -> None:
        """Send a message if the window has room for it, else wait for something to come.

        Raises:
            Lost: the connection is over.
        """
        if self.unanswered + self._batch <= self._window:
            await self.ask(self._batch)
        else:
            await self._connection.skim()

    async def ask(self, number: int) -> None:
        """Send a message with so many requests, and what is to be acknowledged.

        Raises:
            Lost: the connection is over.
        """
        connection = self._connection
        packets = []
        for each in range(number):
            connection.request += 1
            head = f'"id":{connection.number + 1},"received":{connection.received},' if each == 0 else ""
            packets.append(f'{{{head}"request":{connection.request},{self._fields(connection.request)}}}')
        connection.number += number
        self._count(number)
        text = packets[0] if number == 1 else f"[{','.join(packets)}]"
        await connection.send(wire.frame(text.encode()))

    async def answered(self) -> None:
        """Wait until every request has its reply.

        Raises:
            Lost: the connection is over.
        """
        while self.unanswered > 0:
            await self._connection.skim()


async def pump_until_over(attacker: Attacker, connection: Connection, fields: Fields, window: int = WINDOW) -> None:
    """Ask as fast as a window and the node allow until the time is up, count what was asked, and hang up.

    Args:
        attacker: whose time and effort it is.
        connection: of a session, greeted; dropped in any case.
        fields: of each request.
        window: requests without a reply.

    Raises:
        Lost: the node has ended the connection.
    """

    def count(number: int) -> None:
        attacker.effort.done += number

    try:
        pump = Pump(connection, fields, window, count)
        while not attacker.over:
            await pump.stroke()
    finally:
        attacker.drop(connection)


@dataclass(frozen=True, kw_only=True)
class Requests(Attack):
    """One kind of request, as fast as the window and the node allow.

    Attributes:
        fields: of each request.
        connections: sessions side by side, all of one principal.
        window: requests without a reply.
    """

    fields: Fields
    connections: int = 1
    window: int = WINDOW

    async def run(self, attacker: Attacker, seconds: float) -> None:
        """See ``Attack``."""

        async def once() -> None:
            await pump_until_over(attacker, await attacker.session(), self.fields, self.window)

        attacker.begin(seconds)
        number = attacker.target.scaled(self.connections)
        await attacker.at_once(attacker.again_and_again(once) for _ in range(number))


def long_selector(number: int) -> str:
    """Make a selector of nearly 1,024 bytes with as many wildcards as there may be, another for each number."""
    middle = "/".join(LONG_SEGMENT for _ in range(23))
    return f"mallory/{number:08}/*/**/{LONG_SEGMENT}/**/{middle}/**/{LONG_SEGMENT}/**"


def _publish(number: int) -> str:
    return f'"type":"publish","topic":"mallory/{number % 100}","value":{number}'


_VALUE: Final = "v" * VALUE_BYTES


def large_publish(number: int) -> str:
    """Make the fields of a publish of the largest value, to one of a hundred topics."""
    return f'"type":"publish","topic":"mallory/{number % 100}","value":"{_VALUE}"'


def _subscribe(number: int) -> str:
    return f'"type":"subscribe","selector":"mallory/{number % 500}"'


def _large_subscribe(number: int) -> str:
    return f'"type":"subscribe","selector":"{long_selector(number)}"'


def _unsubscribe(number: int) -> str:
    return f'"type":"unsubscribe","selector":"mallory/{number % 500}"'


def _large_unsubscribe(number: int) -> str:
    keep = ",".join(f'"{long_selector(number * 64 + each)}"' for each in range(60))
    return f'"type":"unsubscribe","selector":"**","keep":[{keep}]'


def _properties(number: int) -> str:
    return f'"type":"properties","set":{{"p":"{number}"}}'


_LONG_TEXT: Final = "t" * 990


def _large_properties(number: int) -> str:
    changes = ",".join(f'"p{each}":"{number:08}{_LONG_TEXT}"' for each in range(60))
    return f'"type":"properties","set":{{{changes}}}'


def _authenticate(number: int) -> str:
    return f'"type":"authenticate","secret":"wrong {number}"'


_LONG_SECRET: Final = "s" * 60_000


def _large_authenticate(number: int) -> str:
    return f'"type":"authenticate","secret":"{number}{_LONG_SECRET}"'


_SURROGATES: Final = "\\ud83d" * 5_000


def _not_unicode(number: int) -> str:
    return f'"type":"publish","topic":"mallory/{number % 100}","value":"{_SURROGATES}"'


_ARRAYS: Final = "[" * 120 + "]" * 120
_INFINITE: Final = ",".join([_ARRAYS] * 100)


def _infinite(number: int) -> str:
    return f'"type":"publish","topic":"mallory/{number % 100}","value":[{_INFINITE},1E400]'


def _bad_request(number: int) -> str:
    return f'"type":"publish","topic":{number},"value":1'


TITLE: Final = "Requests of a session"

USERS: Final = Needs(users=True)

ATTACKS: Final = (
    *(
        Requests(
            name=f"{name}{'-several' if sessions > 1 else ''}",
            about=f"{about}, {f'{sessions} sessions of one account' if sessions > 1 else '1 session'}",
            counts="requests",
            fields=fields,
            connections=sessions,
        )
        for name, about, fields, numbers in (
            ("publish", "small values to 100 topics", _publish, (1, SEVERAL)),
            ("publish-large", "values of 32 KB to 100 topics", large_publish, (1,)),
            ("subscribe", "subscribes to 500 short selectors", _subscribe, (1, SEVERAL)),
            ("subscribe-large", "subscribes to ever new selectors of 1 KB", _large_subscribe, (1, SEVERAL)),
            ("unsubscribe", "unsubscribes from 500 short selectors", _unsubscribe, (1, SEVERAL)),
            ("unsubscribe-large", "unsubscribes that keep 60 selectors of 1 KB", _large_unsubscribe, (1, SEVERAL)),
            ("properties", "changes of one property", _properties, (1, SEVERAL)),
            ("properties-large", "changes of 60 properties of 1 KB", _large_properties, (1, SEVERAL)),
            ("bad-requests", "publishes whose topic is a number", _bad_request, (1, SEVERAL)),
            ("not-unicode", "publishes of 5,000 lone surrogates", _not_unicode, (1, SEVERAL)),
            ("infinite", "publishes of 24 KB of arrays and one infinite number", _infinite, (1, SEVERAL)),
        )
        for sessions in numbers
    ),
    Requests(
        name="authenticate",
        about="short wrong secrets, 1 session",
        counts="requests",
        fields=_authenticate,
        needs=USERS,
    ),
    Requests(
        name="authenticate-large",
        about="wrong secrets of 60 KB, 1 session",
        counts="requests",
        fields=_large_authenticate,
        needs=USERS,
    ),
)
