"""The protocol under gevent: the machines of ``gateway.core`` and ``gateway.client``, and a shell of greenlets around.

There is one implementation of the protocol in this project. What is numbered, acknowledged and resent, when a client
comes back and when it gives up, which requests are asked again: all of that is decided by the same pure machines that
the Python client uses. Here they only get sockets, timers and greenlets in place of asyncio's.
"""
