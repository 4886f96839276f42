"""One outside thing each. Adapters implement ports and do not import one another.

What several of them need for that stands beside them in a module of its own (``gateway.adapters.listeners``).
"""
