"""The pipeline over the session journal: what happened, to whom, and was it within promise.

```text
gateway nodes ──▶ journal streams ──▶ bronze ──▶ silver ──▶ gold ──▶ report, and topics ops/…
                  (Redis)            events     sessions   objectives, incidents, storms, traffic
```

Transformations take data frames and give data frames; only jobs read and write. The schema of events is the gateway's
own (``gateway.core.journal``), imported and not repeated.
"""
