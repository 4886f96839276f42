"""Writes lines in a thread, so that a reader of the log who is stuck cannot stop the event loop."""

from __future__ import annotations

import atexit
import threading
from collections import deque
from typing import Final, TextIO

MOST_LINES: Final = 10_000
"""Lines that wait for a slow reader: some seconds of a storm of reconnects, a few MiB."""

GATHER_SECONDS: Final = 0.02
"""How long lines that are not urgent gather before they are written. A thread that is woken for every line takes the
interpreter away from the event loop each time; woken fifty times a second it is not noticed. Should the machine lose
power or the process be killed, the lines of that time are lost, as are those that any log has yet to write."""

CLOSE_SECONDS: Final = 2.0
"""How long ``close`` waits for the reader to take what is left."""


class LineWriter:
    """A bounded queue of lines before a stream.

    When the queue is full, new lines are dropped and counted, and the count is written before the next line that fits:
    a log with a hole says so. Lines keep their order. Safe to use from several threads.

    Attributes:
        dropped: lines dropped in all.
    """

    def __init__(self, stream: TextIO, *, most_lines: int = MOST_LINES) -> None:
        """Start the thread that writes to *stream*.

        Args:
            stream: is flushed after each batch, and never closed.
            most_lines: that may wait.
        """
        self._stream = stream
        self._most_lines = most_lines
        self._waiting: deque[str] = deque()
        self._dropped = 0
        self.dropped = 0
        self._dropping = threading.Lock()
        self._closed = False
        # Set by whoever adds a line, cleared by the thread before it takes the lines: no line is left unseen.
        self._news = threading.Event()
        self._hurry = threading.Event()
        # A daemon: a reader that is stuck for ever must not keep the process from ending.
        self._thread = threading.Thread(target=self._write_all, name="log-writer", daemon=True)
        self._thread.start()
        # What is left is written also where nobody calls close(): the last lines of a process are the precious ones.
        atexit.register(self.close)

    def write(self, line: str, *, urgent: bool = False) -> None:
        """Queue *line*, or drop and count it if there is no room. Returns at once.

        Args:
            line: without its end.
            urgent: have it written now, and not within ``GATHER_SECONDS``.
        """
        if self._closed:
            return
        if len(self._waiting) >= self._most_lines:
            with self._dropping:
                self._dropped += 1
                self.dropped += 1
            return
        self._waiting.append(line)
        if urgent:
            self._hurry.set()
        if not self._news.is_set():
            self._news.set()

    def take_dropped(self) -> int:
        """Tell how many lines were dropped and start counting anew, if there is room for a line again."""
        # Looked at without the lock: this is asked for each line, and a late answer does no harm.
        if not self._dropped or len(self._waiting) >= self._most_lines:
            return 0
        with self._dropping:
            dropped, self._dropped = self._dropped, 0
            return dropped

    def close(self, *, seconds: float = CLOSE_SECONDS) -> None:
        """Write what is left and end the thread; gives up after *seconds* if nobody reads. Later lines are dropped."""
        atexit.unregister(self.close)
        self._closed = True
        self._hurry.set()
        self._news.set()
        self._thread.join(seconds)

    def _write_all(self) -> None:
        while True:
            self._news.wait()
            self._hurry.wait(GATHER_SECONDS)
            closed = self._closed
            self._hurry.clear()
            self._news.clear()
            batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if batch:
                self._write_batch(batch)
            if closed:
                return

    def _write_batch(self, batch: list[str]) -> None:
        try:
            self._stream.write("\n".join(batch) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            # The reader is gone, or the stream closed: there is nowhere left to say so, and clients go on.
            return
