"""The grid on Redis 7.0 or newer, by itself, behind Sentinels or as a Redis Cluster: ``RedisGrid`` is a ``Grid``.

```text
RedisGrid ─┬─ sessions ─┐          ┌─ Batcher ──one pipeline per tick──▶ a master   commands, in order, never repeated
           ├─ nodes ────┼─▶ Router ┤
           ├─ topics ───┘          └─ Batcher ─────────────────────────▶ another    (of a Redis Cluster)
           ├─ tail ────────── one Reader per master ───────────────────▶ streams of topics, and the node's inbox
           └─ GridConnection   asks a Finder who the masters are, has them adopted, reports what happens to them
```

Every atomic step is one Lua file in ``scripts``; ``keys`` documents every key.
"""

from gateway.adapters.redis.grid import RedisGrid

__all__ = ["RedisGrid"]
