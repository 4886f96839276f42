"""Writes lines in a thread, so that a reader of the log who is stuck cannot stop the event loop."""

from __future__ import annotations

import atexit
import threading
from collections import deque
from typing import Final, TextIO

MOST_LINES: Final = 10_000
"""Lines that wait for a slow reader: some seconds of a storm of reconnects, a few MiB."""

CLOSE_SECONDS: Final = 2.0
"""How long ``close`` waits for the reader to take what is left."""


class LineWriter:
    """A bounded queue of lines before a stream.

    When the queue is full, new lines are dropped and counted, and the count is written before the next line that fits:
    a log with a hole says so. Lines keep their order. Safe to use from several threads.
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
        self._closed = False
        self._changed = threading.Condition()
        # A daemon: a reader that is stuck for ever must not keep the process from ending.
        self._thread = threading.Thread(target=self._write_all, name="log-writer", daemon=True)
        self._thread.start()
        # What is left is written also where nobody calls close(): the last lines of a process are the precious ones.
        atexit.register(self.close)

    def write(self, line: str) -> None:
        """Queue *line*, or drop and count it if there is no room. Returns at once."""
        with self._changed:
            if self._closed:
                return
            if len(self._waiting) >= self._most_lines:
                self._dropped += 1
                return
            self._waiting.append(line)
            self._changed.notify()

    def take_dropped(self) -> int:
        """Tell how many lines were dropped and start counting anew, if there is room for a line again."""
        if not self._dropped:  # read without the lock: this is asked for each line, and a late answer does no harm
            return 0
        with self._changed:
            if len(self._waiting) >= self._most_lines:
                return 0
            dropped, self._dropped = self._dropped, 0
            return dropped

    def close(self, *, seconds: float = CLOSE_SECONDS) -> None:
        """Write what is left and end the thread; gives up after *seconds* if nobody reads. Later lines are dropped."""
        atexit.unregister(self.close)
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(seconds)

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                batch = list(self._waiting)
                self._waiting.clear()
                closed = self._closed
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
