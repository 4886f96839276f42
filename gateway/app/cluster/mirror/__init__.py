"""Copies of sessions at another node, from which they go on if their node dies (rung 3, seed 002, ADR 0077).

```text
A: MirrorSource                                     B: MirrorHolder
chooses B ── mirror {frame} ──────────────────────▶ its copies of A's sessions
          ◀───────────── mirrored {up to here} ──── takes frames in
tells the grid who its backup is

A dies. C, or B itself, claims a session of A's, asks the grid who has copies, and asks B with ``take``, as it would ask
A of a handoff. B asks the grid whether the session is C's, and gives what it has.
```

A copy gives no right: the grid alone decides who serves a session (P3). The backup executes nothing, and writes nothing
to a client or to the grid for a session that it does not own (M4).
"""
