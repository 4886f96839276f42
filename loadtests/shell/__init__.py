"""The protocol under gevent: the client's machine of ``gateway.core.client``, and a shell of greenlets around it.

There is one implementation of the protocol in this project. What is numbered, acknowledged and resent, when a client
comes back and when it gives up, which requests are asked again: all of that is decided by the same pure machine that
the Python client uses. Here it only gets sockets, timers and greenlets in place of asyncio's.
"""
