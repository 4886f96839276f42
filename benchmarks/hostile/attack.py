"""What an attack is, and the means that every attacker has.

An attack is a value: a name, a sentence, what it needs of the stack, and ``run``. It runs in a process of its own
(``benchmarks.hostile.attacker``). It prepares itself first, as a patient attacker would, then calls ``Attacker.begin``;
from there on everything counts, until the given seconds are over.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.hostile.connection import PATIENCE, Connection, Lost, plain_socket
from benchmarks.hostile.target import ATTACKER, HOST, Entry, Target

PRINCIPAL: Final = "mallory"
"""The account that attacks."""

_RETRY: Final = 0.02
"""Seconds before something is tried again that came to nothing, so that an attacker does not spend its CPU on being
refused."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What an attack needs of the stack beyond the defaults.

    Attributes:
        users: clients are asked for a secret, by a file of users with scrypt hashes.
        tokens: clients are asked for a JSON Web Token, signed with a key of RSA 2048.
        service: clients are asked for a secret, and a service is asked who has it (``benchmarks.hostile.service``). It
            takes so many seconds to refuse a wrong one, and hardly any for a right one.
        policy: a policy file with wildcards is in force.
        tls: the attacked node speaks TLS.
        descriptors: soft limit of open files that the node is started with; the one of the benchmark if None.
        descriptors_hard: that limit is the hard one as well, which no process can raise.
        redis_megabytes: Redis's ``maxmemory``; the shipped file has 2 GB, which takes longer to fill. None for none.
        redis_part: Redis has this part of the memory that the shipped file gives it, and a topic partition this part of
            the bytes that it may have by default, so that an attack of seconds comes as far as one of minutes would.
        outage: seconds for which Redis is unreachable in the middle of *both* phases.
        exempt: ``limit_exempt`` has its default: whoever comes from the node's own machine, as everybody here does, is
            exempt from the limits of an address.
        full: the attack fills Redis before it begins: then what would store more is refused to everybody, that alone.
    """

    users: bool = False
    tokens: bool = False
    service: float | None = None
    policy: bool = False
    tls: bool = False
    descriptors: int | None = None
    descriptors_hard: bool = False
    redis_megabytes: int | None = None
    redis_part: float | None = None
    outage: float | None = None
    exempt: bool = False
    full: bool = False

    def words(self) -> str:
        """Tell what is not the default, for people; nothing if all is."""
        told = {
            "users with secrets": self.users,
            "users with tokens": self.tokens,
            f"a service that takes {self.service:g} s to refuse a secret" if self.service else "": self.service,
            "a policy with wildcards": self.policy,
            "TLS at the node": self.tls,
            f"at most {self.descriptors:,} descriptors{' for good' if self.descriptors_hard else ''}"
            if self.descriptors
            else "": self.descriptors,
            f"Redis with {self.redis_megabytes} MB" if self.redis_megabytes else "": self.redis_megabytes,
            "no limits of an address": self.exempt,
            f"Redis and the bytes of partitions {self.redis_part:.1%} of what is shipped"
            if self.redis_part
            else "": self.redis_part,
            f"Redis away for {self.outage:g} s of both phases; times are net of it" if self.outage else "": self.outage,
        }
        return ", ".join(words for words, holds in told.items() if holds)


@dataclass
class Effort:
    """What an attack has cost and done since ``begin``.

    Attributes:
        connections: opened, those of the preparation that are still there included.
        sent: bytes.
        received: bytes.
        done: what the attack counts, such as requests, handshakes or chunks of frames.
        refused: connections that the node refused or closed, by what it said.
    """

    connections: int = 0
    sent: int = 0
    received: int = 0
    done: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    def refuse(self, why: str) -> None:
        """Count a refusal; the words are the node's own or those of ``Lost``."""
        self.refused[why] = self.refused.get(why, 0) + 1


class Attacker:
    """The means of an attack.

    Attributes:
        target: what is attacked.
        effort: what it has cost so far.
    """

    def __init__(
        self,
        target: Target,
        announce: Callable[[], None],
        *,
        addresses: Sequence[str] = (ATTACKER,),
        entry: Entry = Entry.CLIENTS,
    ) -> None:
        """Describe an attacker.

        Args:
            target: what is attacked.
            announce: called by ``begin``.
            addresses: where it comes from, in turn.
            entry: where it opens WebSockets.
        """
        self._addresses = itertools.cycle(addresses)
        self._entry = entry
        self.target = target
        self.effort = Effort()
        self._announce = announce
        self._end: float | None = None
        self._open: set[Connection] = set()
        self._counted: dict[Connection, tuple[int, int]] = {}

    @property
    def begun(self) -> bool:
        """Whether the preparation is over."""
        return self._end is not None

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self._end is not None and time.monotonic() >= self._end

    def begin(self, seconds: float) -> None:
        """End the preparation: from now on everything counts, for so many seconds."""
        self._harvest()
        self.effort = Effort(connections=len(self._open))
        self._end = time.monotonic() + seconds
        self._announce()

    # --- Connections ------------------------------------------------------------------------------------------------

    async def connect(self, *, receive_buffer: int | None = None) -> Connection:
        """Open a connection, without a word.

        Raises:
            Lost: it could not be opened.
        """
        connection = await Connection.open(
            self.target, next(self._addresses), receive_buffer=receive_buffer, entry=self._entry
        )
        self.effort.connections += 1
        self._open.add(connection)
        return connection

    async def upgraded(self, *, receive_buffer: int | None = None) -> Connection:
        """Open a WebSocket, and say nothing yet.

        Raises:
            Lost: the node refused.
        """
        connection = await self.connect(receive_buffer=receive_buffer)
        try:
            await connection.upgrade()
        except BaseException:
            self.drop(connection)
            raise
        return connection

    async def session(self, *, window: float | None = None, receive_buffer: int | None = None) -> Connection:
        """Open a session of the attacker's account.

        Raises:
            Lost: the node refused.
        """
        connection = await self.upgraded(receive_buffer=receive_buffer)
        try:
            await connection.hello(PRINCIPAL, self.target.secrets.get(PRINCIPAL, ""), window=window)
        except BaseException:
            self.drop(connection)
            raise
        return connection

    def drop(self, connection: Connection) -> None:
        """Reset a connection and count what went over it."""
        self._harvest()
        self._open.discard(connection)
        self._counted.pop(connection, None)
        connection.cut()

    async def stream(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a TCP connection to another port than the clients'; who uses it counts its bytes.

        Raises:
            Lost: it could not be opened.
        """
        made = plain_socket(next(self._addresses))
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.get_running_loop().sock_connect(made, (HOST, port))
                opened = await asyncio.open_connection(sock=made)
        except (OSError, TimeoutError) as error:
            made.close()
            raise Lost(f"connect: {type(error).__name__}") from error
        except BaseException:
            made.close()
            raise
        self.effort.connections += 1
        return opened

    async def dial(self, said: bytes = b"") -> socket.socket:
        """Open a bare TCP connection where WebSockets are opened, and say something.

        Raises:
            Lost: it could not be opened, or was closed before all was said.
        """
        made, loop = plain_socket(next(self._addresses)), asyncio.get_running_loop()
        try:
            async with asyncio.timeout(PATIENCE):
                await loop.sock_connect(made, (HOST, self.target.port_of(self._entry)))
                self.effort.connections += 1
                if said:
                    await loop.sock_sendall(made, said)
        except (OSError, TimeoutError) as error:
            made.close()
            raise Lost(f"dial: {type(error).__name__}") from error
        except BaseException:
            made.close()
            raise
        self.effort.sent += len(said)
        return made

    # --- Doing things ----------------------------------------------------------------------------------------------

    async def at_once(self, workers: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Run workers side by side until the time is up; then they are cancelled.

        Raises:
            BaseException: a worker's own error; ``Lost`` is none, see ``again_and_again``.
        """
        tasks = [asyncio.ensure_future(each) for each in workers]
        remaining = None if self._end is None else max(0.0, self._end - time.monotonic())
        done, waiting = await asyncio.wait(tasks, timeout=remaining, return_when=asyncio.FIRST_EXCEPTION)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for each in done:
            each.result()

    async def again_and_again(self, once: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something until the time is up; whenever the node ends it, begin anew."""
        while not self.over:
            done = self.effort.done
            try:
                await once()
            except Lost as lost:
                self.effort.refuse(str(lost))
            # Whoever never waits for anything would keep the others of this process from their turn.
            await asyncio.sleep(0 if self.effort.done > done else _RETRY)

    async def paced(self, rate: float) -> AsyncIterator[int]:
        """Count from 0 at *rate* a second, by a schedule that waits for nobody, until the time is up."""
        began, number = time.monotonic(), 0
        while not self.over:
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            yield number
            number += 1

    async def gathered(self, number: int, make: Callable[[], Coroutine[Any, Any, Connection]]) -> list[Connection]:
        """Open many connections, some at a time, as a preparation; what is refused is left out.

        Raises:
            Lost: not one was opened; the text is what the last one was told.
        """
        found: list[Connection] = []
        last = ""

        async def some(share: int) -> None:
            nonlocal last
            for _ in range(share):
                try:
                    found.append(await make())
                except Lost as lost:
                    last = str(lost)

        lanes = min(number, _LANES)
        await asyncio.gather(*(some(number // lanes + (lane < number % lanes)) for lane in range(lanes)))
        if not found:
            raise Lost(f"not one of {number} connections was opened: {last}")
        return found

    def finish(self) -> Effort:
        """Tell what it has cost."""
        self._harvest()
        return self.effort

    def _harvest(self) -> None:
        for connection in self._open:
            sent, received = self._counted.get(connection, (0, 0))
            self.effort.sent += connection.sent - sent
            self.effort.received += connection.received_bytes - received
            self._counted[connection] = (connection.sent, connection.received_bytes)


_LANES: Final = 16
"""Connections that are opened side by side in a preparation: not an attack yet."""


@dataclass(frozen=True, kw_only=True)
class Attack(ABC):
    """One way to take of a node what is not one's own; ``catalogue`` has all.

    Attributes:
        name: for ``--rows``, lower case with hyphens, such as ``pongs``.
        about: what it does, for the table; a phrase.
        counts: what ``Effort.done`` counts, in the plural.
        needs: what the stack must have.
        addresses: where it comes from, in turn.
        entry: where it opens WebSockets.
    """

    name: str
    about: str
    counts: str
    needs: Needs = Needs()
    addresses: Sequence[str] = (ATTACKER,)
    entry: Entry = Entry.CLIENTS

    @abstractmethod
    async def run(self, attacker: Attacker, seconds: float) -> None:
        """Prepare, call ``attacker.begin``, and attack for *seconds*.

        Raises:
            Lost: the preparation failed.
        """
