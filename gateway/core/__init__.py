"""The pure heart of the gateway: no I/O, no clock, no randomness, no logging, no await.

Everything here is shared by the node and the client. Time comes in as an argument (seconds, a float from a
monotonic clock that the shell reads), and the next deadline goes out as a value.
"""
