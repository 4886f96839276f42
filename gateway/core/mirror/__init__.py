"""A backup's exact copy of another node's sessions: what is sent for it, and what is made of that (seed 002, ADR 0077).

```text
live node                                              backup
session ─▶ tap ─▶ log ──── one frame a turn ─────────▶ copies ─▶ given to whoever has claimed the session
                   ▲                                     │
                   └──────── acknowledged up to ─────────┘
```

Not what clients ask for is sent, but what became of it: packets that were numbered, received, acknowledged. So the copy
need not come to the same results by itself, and nothing is executed twice. A frame says all that has changed since the
last one, for all sessions at the same moment, with how far the node had come in the streams then. So a copy is always
what its session was at one moment.

Pure: nothing here knows of links, of time or of the grid; whose a session is stays a matter of the grid alone (P3).
"""
