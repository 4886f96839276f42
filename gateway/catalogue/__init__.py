"""What operators see, declared once: metrics, log events and why connections are turned away.

The reference pages are generated from here. Close codes and error codes are part of the protocol and so in
``gateway.core.wire.codes``.

Whoever looks for the place at which a metric is counted or a line is logged: most are, by declaring an ``Event`` in
``gateway/app/journal/session_events.py`` or ``node_events.py``, which names its metric, its log event and its event of
the journal; ``announce(event)`` tells all of them.
"""
