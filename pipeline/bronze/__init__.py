"""Bronze: every event of the journal once, as Parquet by date and hour.

```text
<lake>/bronze/date=YYYY-MM-DD/hour=HH/*.parquet   the events; readers need to know nothing else
<lake>/bronze/_rejected/date=YYYY-MM-DD/          what could not be an event, with the reason
<lake>/bronze/_log/                               the commits: the truth about what bronze holds
<lake>/bronze/_staging/                           files that are being written
```

Readers of files leave out what begins with an underscore. See ``docs/explanation/pipeline.md`` for how each event gets
there once.
"""
