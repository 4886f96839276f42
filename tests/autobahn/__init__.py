"""The Autobahn test suite against the client port: `make autobahn` where there is a Python 2.7, and what came of it.

The suite is the one by which WebSocket implementations are compared. It is written for Python 2.7, which Debian has no
more; so it is no part of `make test`. ``tests/integration/hostile/test_rfc6455.py`` asks there what RFC 6455 says.
"""
