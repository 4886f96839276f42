"""Live gold as topics ``ops/…``: a dashboard subscribes to them like to anything else.

| topic | value |
|---|---|
| ``ops/objective/<node>`` | the newest hour of ``objectives``, its releases together |
| ``ops/incidents/<incident>`` | an incident of the days that were published |
| ``ops/storms/<begin>`` | a reconnect storm of these days |
| ``ops/slow-consumers`` | the slow consumers of the newest day, the worst first |
| ``ops/traffic/<root>`` | the newest hour of ``traffic`` |
| ``ops/capacity/<node>`` | the newest hour of ``capacity`` |
| ``ops/losses/<node>`` | what the journal misses of a node on the newest day |
| ``ops/published`` | when, by which batch, and which days |
"""
