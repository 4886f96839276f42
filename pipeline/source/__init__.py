"""The journal as Spark reads it: the Data Source ``gateway_journal``, and what tasks make of its ranges.

```text
offset     for each stream: the incarnation of the stream, and the id of the last entry that was read
partition  one for each stream with something to read: entries after one id, up to another
row        which range it is; the task that works on it reads the entries itself
lines      one for each line of each entry; a line that is no event is one, too, with the reason
```

A range of entries can be read as often as it takes, until it is trimmed; and only ``commit`` trims, with a lag. What is
gone though it is needed still is refused, never skipped.
"""
