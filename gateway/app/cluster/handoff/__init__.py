"""How a session goes from the node that has served it to the one that has claimed it (rung 2, P12, ADR 0074).

```text
client          B: SessionTaker            grid                 A: SessionGiver
resume ───▶ claim ─────────────────────▶ epoch + 1, was A's
            take {session, epoch} ────────────────────────────▶ is it B's, by that epoch?
                                            ◀── find ────────── asks the grid
                                                                begins nothing more, 50 ms for what has begun
                                                                stops serving it, closes its socket (4004), keeps it
            ◀──────────────── what it was, unanswered requests, how far it had come
            catches up, index, reattaches
◀─── welcome handed_over
first packet ▶ taken ─────────────────────────────────────────▶ forgets it
```

Nothing said here gives a right: the claim comes first, and the grid alone decides it (P3, ADR 0065). Whatever fails
leaves the session to the next rung, and costs 250 ms at most.
"""
