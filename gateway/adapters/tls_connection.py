"""A socket that speaks TLS as a server, for adapters with a port of their own.

It is used as a socket that does not block: ``BlockingIOError`` means later, any other ``OSError`` means broken.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from ssl import MemoryBIO, SSLContext, SSLError, SSLWantReadError
from typing import Final

RECORD_BYTES: Final = 16 * 1024
"""Largest content of one record of TLS (RFC 8446 section 5.1)."""

RECORD_MOST_BYTES: Final = RECORD_BYTES + 5 + 256
"""Largest record with its head, and with all that a protected one may have besides (section 5.2)."""

OVERHEAD_BYTES: Final = 5 + 8 + 16
"""Of a record of TLS 1.2 that is no content: head, nonce, tag."""

OVERHEAD_BYTES_1_3: Final = 5 + 1 + 16
"""Of one of TLS 1.3 without padding: head, kind of content, tag."""

PIECE_BYTES: Final = 4 * 1024
"""Bytes that are taken at a time of a client of which too much has come that says nothing: a hundred and fifty changes
of keys, which take OpenSSL 2 ms."""

GATHERED_BYTES: Final = 4 * RECORD_BYTES
"""Bytes whose records are handed to the kernel in one call, which is a quarter cheaper than a call for each; so many
are kept while the kernel takes nothing."""

RECORD_COST: Final = 2e-6
"""Seconds for a record of TLS beside others in one read. An estimate."""

SILENT_BYTE_COST: Final = 0.6e-6
"""Seconds for a byte that came over TLS and said nothing: a change of keys takes 27 of them and 13 µs of OpenSSL. On
the high side for all else that says nothing, which honest clients do not send."""

HANDSHAKE_PIECES: Final = 4
"""Pieces of a handshake that are taken in one turn: all of nearly every handshake, and of the others 2 ms at worst."""

UNSENT_MOST_BYTES: Final = 2 * GATHERED_BYTES
"""Bytes of records that may wait for a client that does not read: those with content, and answers of OpenSSL's own."""


class NothingSaid(Exception):
    """What has come over TLS says nothing, and is no record that is under way (P20). There may be more."""


class TlsConnection:
    """A socket that speaks TLS as a server, once ``shake_hands`` has come to its end.

    OpenSSL never reads from the socket itself: within one call it would go on for as long as records come that say
    nothing, as changes of keys do, and a client can send those faster than they are taken in. It is handed one bounded
    piece after the other, so that every call comes to its end, and what has said nothing can be charged (ADR 0047).

    Whoever calls ``recv`` until it raises leaves nothing behind, and can rely on the descriptor. OpenSSL lets go of its
    own buffers while nothing is under way, so that an idle connection costs little. Those in memory, of which it reads
    and to which it writes, keep the largest size that they had, which is that of one record.

    Args:
        connection: just accepted, not blocking; taken over.
        context: says how; later changes of it do not concern this connection.

    Attributes:
        work: seconds of CPU that records have caused, beyond what they said; whoever charges it sets it to 0.
    """

    __slots__ = (
        "_ahead",
        "_end",
        "_incoming",
        "_outgoing",
        "_overhead",
        "_socket",
        "_surplus",
        "_tls",
        "_unsent",
        "work",
    )

    def __init__(self, connection: socket.socket, context: SSLContext) -> None:
        self._socket = connection
        self._incoming, self._outgoing = MemoryBIO(), MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unsent = b""
        """Records that the kernel has not taken."""
        self._ahead = 0
        """Bytes at the beginning of what is to be sent that are in these records already."""
        self._end: SSLError | bool = False
        """Whether the client has ended TLS, or what has broken it: told when what came before it has been taken."""
        self._overhead = OVERHEAD_BYTES
        self._surplus = 0
        """Bytes that have come, less those that they said: of a record that is under way, or of none."""
        self.work = 0.0

    def fileno(self) -> int:
        """The descriptor to wait for; -1 once closed."""
        return self._socket.fileno()

    def shake_hands(self) -> None:
        """Go on with the handshake as far as what has come allows; returns when it is done.

        One call may compute a signature, which is the most that an unauthenticated client can cause.

        Raises:
            BlockingIOError: more has to come first.
            NothingSaid: that was much, and there may be more.
            ssl.SSLError: no connection comes about.
            OSError: the connection is broken.
        """
        try:
            for _ in range(HANDSHAKE_PIECES):
                try:
                    self._tls.do_handshake()
                except SSLWantReadError:
                    piece = self._socket.recv(PIECE_BYTES)
                else:
                    break
                if not piece:
                    raise ConnectionAbortedError("the connection ended before TLS began")
                self._incoming.write(piece)
            else:
                raise NothingSaid
        finally:
            self._flush()  # also what tells the client of an error
        if self._tls.version() == "TLSv1.3":
            self._overhead = OVERHEAD_BYTES_1_3

    def recv(self, _size: int, /) -> bytes:
        """Tell what the record says that has come, or those that have come together; nothing means that TLS has ended.

        Raises:
            BlockingIOError: nothing has come, or not a whole record.
            NothingSaid: see there, and ``work``.
            ssl.SSLError: what has come was tampered with, or breaks the rules of TLS.
            OSError: the connection is broken.
        """
        if self._incoming.pending and (said := self._decipher()):  # it came right behind the handshake
            return said
        while not self._end:
            # Who sends what says something is read in large pieces.
            data = self._socket.recv(RECORD_MOST_BYTES if self._surplus <= PIECE_BYTES else PIECE_BYTES)
            if not data:
                return b""
            self._surplus += len(data)
            self._incoming.write(data)
            said = self._decipher()
            if self._surplus > RECORD_MOST_BYTES:
                self._charge()
                if not said:
                    raise NothingSaid
            if said:
                return said
        if isinstance(self._end, SSLError):
            raise self._end
        return b""

    def _decipher(self) -> bytes:
        """Read the records that are whole; returns nothing if they say nothing."""
        incoming, tls = self._incoming, self._tls
        said: list[bytes] = []
        size = 0
        try:
            while True:
                record = tls.read(RECORD_BYTES)
                if not record:
                    self._end = True
                    break
                size += len(record) + self._overhead
                said.append(record)
                if not incoming.pending:
                    break
        except SSLWantReadError:
            pass
        except SSLError as error:
            self._flush()  # what tells the client
            self._end = error
        self._surplus = max(0, self._surplus - size)
        if len(said) == 1:
            return said[0]
        self.work += len(said) * RECORD_COST
        return b"".join(said)

    def _charge(self) -> None:
        """Charge what is no record that may be under way.

        Raises:
            OSError: OpenSSL has more to say about it than the client takes.
        """
        self.work += (self._surplus - RECORD_MOST_BYTES) * SILENT_BYTE_COST
        self._surplus = RECORD_MOST_BYTES
        self._flush()
        if len(self._unsent) > UNSENT_MOST_BYTES:
            raise ConnectionAbortedError("the client reads no answers of TLS, and causes ever more")

    def send(self, data: bytes | bytearray | memoryview, /) -> int:
        """Hand over as much as is taken now, a record whole or not at all.

        What was not taken is offered again from there, with more behind it or not.

        Returns:
            Bytes taken; they are no less than one.

        Raises:
            BlockingIOError: the kernel takes nothing now.
            OSError: the connection is broken.
        """
        if self._ahead or self._unsent or len(data) > RECORD_BYTES:
            return self._send_records(data)
        # As ``_hand_over``, without a call: this is the way of nearly everything.
        self._tls.write(data)
        records = self._outgoing.read()
        try:
            taken = self._socket.send(records)
        except BlockingIOError:
            taken = 0
        if taken < len(records):
            self._unsent, self._ahead = records[taken:], len(data)
            raise BlockingIOError
        return len(data)

    def _send_records(self, data: bytes | bytearray | memoryview) -> int:
        if self._unsent:
            self._hand_over([], self._ahead)
        sent, self._ahead = self._ahead, 0
        with memoryview(data) as view:
            while sent < len(view):
                some = view[sent : sent + GATHERED_BYTES]
                records = []
                for start in range(0, len(some), RECORD_BYTES):
                    self._tls.write(some[start : start + RECORD_BYTES])
                    records.append(self._outgoing.read())
                try:
                    self._hand_over(records, len(some))
                except BlockingIOError:
                    if not sent:
                        raise
                    break
                sent += len(some)
        return sent

    def _hand_over(self, records: Sequence[bytes], size: int) -> None:
        """Hand records to the kernel.

        Args:
            records: made just now; they go behind those that are left.
            size: bytes of what is to be sent that are in all of these records.

        Raises:
            BlockingIOError: it does not take all of them. They are kept, and go first the next time.
            OSError: the connection is broken.
        """
        data = b"".join((self._unsent, *records))
        try:
            taken = self._socket.send(data)
        except BlockingIOError:
            taken = 0
        if taken < len(data):
            self._unsent, self._ahead = data[taken:], size
            raise BlockingIOError
        self._unsent = b""

    def _flush(self) -> None:
        """Send what OpenSSL has to say by itself, as far as the kernel takes it."""
        if self._outgoing.pending or self._unsent:
            with suppress(OSError):
                self._hand_over((self._outgoing.read(),), self._ahead)

    def shutdown(self, how: int, /) -> None:
        """Say that nothing more will be sent, and end TLS, so that the other side knows that nothing was cut off."""
        self._say_end()
        self._socket.shutdown(how)

    def close(self) -> None:
        """End TLS if it can be done at once, and let go of the descriptor."""
        self._say_end()
        self._socket.close()

    def _say_end(self) -> None:
        # It is told at once, and the answer is not waited for. Who is gone cannot be told.
        with suppress(OSError, ValueError):
            self._tls.unwrap()
        self._flush()
