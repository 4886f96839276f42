"""The use cases of a node: handshake, requests, delivery, recovery, drain. Names no vendor; see ``gateway.ports``."""
