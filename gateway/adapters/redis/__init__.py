"""The grid on Redis 7.0 or newer: ``RedisGrid`` implements ``gateway.ports.Grid``.

```text
RedisGrid ─┬─ sessions ─┐
           ├─ nodes ────┼─▶ Batcher ──one pipeline per tick──▶ Redis   commands, in order, never repeated by themselves
           ├─ topics ───┘      ▲
           ├─ tail ────────────┼──────one blocking XREAD─────▶ Redis   streams of topics, and the node's inbox
           └─ Link ────────────┘  connects, adopts the grid's generation, tells when it is away and back
```

Every atomic step is one Lua file in ``scripts``; ``keys`` documents every key.
"""

from gateway.adapters.redis.grid import RedisGrid

__all__ = ["RedisGrid"]
