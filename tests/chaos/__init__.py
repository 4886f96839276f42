"""``make chaos``: a whole cluster is broken at random, under load, and an account of its own tells what it lost.

```text
seed ──▶ plan ──▶ faults ──▶ nodes, links, HAProxy, Redis
                                   ▲
             load: sessions that publish, listen, come and go
                                   │ everything they were told
             reader: Redis, read by plain commands ──▶ account ──▶ violations
```

The plan is a pure function of the seed. The account knows no network and no clock: it is told what happened, with the
time, and judges that by the promises.
"""
