"""The whole gateway on one machine: Redis, nodes and HAProxy as processes on loopback, and faults for them.

What ``make demo``, ``make up`` and the cluster tests stand on. Nothing here is part of a production node: it starts
nodes by their command line and talks to them as any client or operator would.
"""
